"""Nodes of old versions of ONNX's operators, with attributes that newer ones lack."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from tests.ops.cases import Spec


@dataclass(frozen=True)
class OldRow:
    """A node of the file in that opset.  `want`: the results, or NumPy that computes them from the operands, where no
    other implementation runs it."""

    name: str
    opset: int
    operands: tuple[Spec | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    results: tuple[str, ...] = ("y",)
    rtol: float = 1e-5
    want: Any = None

    def __str__(self) -> str:
        return f"{self.name}-{self.opset}-{'-'.join(f'{k}={v}' for k, v in self.attributes.items())}".replace(" ", "")

    def arrays(self) -> list[Any]:
        return [None if s is None else s.array(f"{self}{i}") for i, s in enumerate(self.operands)]

    def feeds(self) -> list[Any]:
        return [a for s, a in zip(self.operands, self.arrays(), strict=True) if s is not None and not s.const]

    def model(self) -> onnx.ModelProto:
        inputs, constants, names = list[Any](), list[Any](), list[str]()
        for i, (spec, array) in enumerate(zip(self.operands, self.arrays(), strict=True)):
            names.append("" if spec is None else f"x{i}")
            if spec is not None and spec.const:
                constants.append(onnx.numpy_helper.from_array(array, names[-1]))
            if spec is not None and not spec.const:
                kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
                inputs.append(onnx.helper.make_tensor_value_info(names[-1], kind, array.shape))
        node = onnx.helper.make_node(self.name, names, self.results, "node", **self.attributes)
        outputs = [onnx.ValueInfoProto(name=r) for r in self.results if r]  # whoever reads it infers the types
        graph = onnx.helper.make_graph([node], "g", inputs, outputs, constants)
        return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", self.opset)], ir_version=8)


def tensor(array: Any) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(np.asarray(array), "value")


X = Spec("f32", (2, 3, 4))
IMAGE = Spec("f32", (1, 3, 6, 7))
CHANNELS = tuple(Spec("f32", (3,), 0.5, 2, const=True) for _ in range(4))
SHAPE = Spec("i64", (2,), values=(2, 3), const=True)
SEVEN = tensor(np.full(1, 7, np.int32))
MATRIX = tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
NOTHING = {"consumed_inputs": [0]}

LENGTHS, THREE, ONE = (Spec("f32", np.shape(v), values=v, const=True) for v in ((1, 3), 3, 1))
COLUMNS = [lambda x: x[:, :1], lambda x: x[:, 1:]]


def legacy(name: str, ufunc: Any, **more: Any) -> list[OldRow]:
    """A binary operation whose second operand stands for an axis in the middle, or for the last ones."""
    middle, last = Spec("f32", (3,), 0.5, 2), Spec("f32", (3, 4), 0.5, 2)
    positive = Spec("f32", (2, 3, 4), 0.5, 2)
    return [
        OldRow(name, opset, (positive, y), {"broadcast": 1, **axis, **(more if opset < 6 else {})}, want=want)
        for opset in (1, 6)
        for y, axis, want in ((middle, {"axis": 1}, [lambda a, b: ufunc(a, b[:, None])]), (last, {}, [ufunc]))
    ]


ROWS: list[OldRow] = [
    *legacy("Add", np.add, consumed_inputs=[0, 0]),
    *legacy("Sub", np.subtract, consumed_inputs=[0, 0]),
    *legacy("Mul", np.multiply, consumed_inputs=[0, 0]),
    *legacy("Div", np.divide, consumed_inputs=[0, 0]),
    *legacy("Pow", np.power),
    OldRow("BatchNormalization", 1, (IMAGE, *CHANNELS), {"is_test": 1, "epsilon": 1e-3, "consumed_inputs": [0] * 5}),
    OldRow("BatchNormalization", 6, (IMAGE, *CHANNELS), {"is_test": 1, "epsilon": 1e-3}),
    OldRow("BatchNormalization", 7, (IMAGE, *CHANNELS), {"epsilon": 1e-3, "momentum": 0.5}),
    OldRow("BatchNormalization", 9, (IMAGE, *CHANNELS)),
    OldRow("Cast", 1, (Spec("f32", (3,), values=(1.5, -2.5, 0)),), {"to": "INT32"}, want=[[1, -2, 0]]),
    OldRow("Cast", 1, (Spec("i32", (3,), values=(1, -2, 0)),), {"to": "BOOL"}, want=[[True, True, False]]),
    *(OldRow("Constant", n, (), {"value": MATRIX}) for n in (1, 9, 11, 12, 13, 19, 21, 23, 24, 25)),
    *(OldRow("Constant", n, (), {"value_ints": [3, 1, 2]}) for n in (12, 13)),
    *(OldRow("Constant", n, (), {"value_float": 1.5}) for n in (12, 13, 19)),
    *(OldRow("ConstantOfShape", n, (SHAPE,), {"value": SEVEN}) for n in (9, 20, 21, 23, 24, 25)),
    *(OldRow("ConstantOfShape", n, (SHAPE,)) for n in (9, 20)),
    OldRow("Dropout", 1, (X,), {"is_test": 1, "ratio": 0.5, **NOTHING}),
    OldRow("Dropout", 6, (X,), {"is_test": 1, "ratio": 0.25}),
    OldRow("Dropout", 7, (X,), {"ratio": 0.25}),
    OldRow("Dropout", 10, (X,)),
    *(
        OldRow("GlobalLpPool", n, (Spec("f32", (1, 2, 2), values=((3, 4), (-6, 8))),), {"p": p}, want=[[[[5], [10]]]])
        for n, p in ((1, 2.0), (2, 2), (22, 2))
    ),
    OldRow("MaxPool", 1, (IMAGE,), {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [1, 0, 0, 1]}),
    OldRow("MaxPool", 1, (IMAGE,), {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER"}),
    OldRow("LpPool", 1, (IMAGE,), {"kernel_shape": [2, 3], "p": 2.0}),
    OldRow("Resize", 10, (IMAGE, Spec("f32", (4,), values=(1, 1, 2, 1.5), const=True)), {"mode": "nearest"}),
    OldRow("Resize", 10, (IMAGE, Spec("f32", (4,), values=(1, 1, 2, 3), const=True)), {"mode": "linear"}),
    *(OldRow("Slice", n, (X,), {"starts": [1, -3], "ends": [9, -1], "axes": [1, 2]}) for n in (1, 7)),
    OldRow("Slice", 7, (X,), {"starts": [0, 1], "ends": [1, 3]}),
    OldRow("Split", 1, (Spec("f32", (2, 4)),), {"axis": 1, "split": [1, 3]}, ("y", "z"), want=COLUMNS),
    OldRow("Split", 1, (Spec("f32", (2, 4)), LENGTHS), {"axis": 1}, ("y", "z"), want=COLUMNS),
    OldRow("Tile", 1, (Spec("f32", (2, 2)), THREE, ONE), want=[lambda x: np.tile(x, (1, 3))]),
    *(OldRow("Split", n, (Spec("f32", (2, 4)),), {"axis": 1, "split": [1, 3]}, ("y", "z")) for n in (2, 7, 11)),
    OldRow("Split", 13, (Spec("f32", (2, 4)), Spec("i64", (2,), values=(1, 3), const=True)), {"axis": 1}, ("y", "z")),
    OldRow("Split", 18, (Spec("f32", (5, 2)),), {"num_outputs": 3}, ("y", "z", "w")),
    OldRow("Upsample", 1, (IMAGE,), {"height_scale": 2.0, "width_scale": 3.0, "mode": "nearest"}),
    OldRow("Upsample", 7, (IMAGE,), {"scales": [1.0, 1.0, 2.0, 3.0], "mode": "linear"}),
    OldRow("Upsample", 9, (IMAGE, Spec("f32", (4,), values=(1, 1, 2, 3), const=True)), {"mode": "nearest"}),
    OldRow("Clip", 1, (X,), {"min": -0.5, "max": 0.25, **NOTHING}),
    OldRow("Clip", 6, (X,), {"max": 0.25}),
    OldRow("Concat", 1, (X, X)),
    OldRow("Pad", 1, (X,), {"paddings": [0, 1, 0, 1, 0, 2], "value": 0.5}),
    OldRow("Pad", 2, (X,), {"pads": [0, 1, 0, 0, 0, 2], "mode": "reflect"}),
    OldRow("Reshape", 1, (X,), {"shape": [0, -1]}),
    OldRow("Gemm", 1, (Spec("f32", (2, 3)), Spec("f32", (3, 4)), Spec("f32", (4,))), {"broadcast": 1, "alpha": 0.5}),
    OldRow("PRelu", 1, (IMAGE, Spec("f32", (3,), 0, 1)), {}),
    OldRow("PRelu", 6, (IMAGE, Spec("f32", (1,), 0, 1)), {}),
    *(OldRow(n, k, (X,)) for n in ("Softmax", "LogSoftmax", "Hardmax") for k in (1, 11)),
    *(OldRow(n, 7, (X,), {"axis": 0}) for n in ("Softmax", "LogSoftmax", "Hardmax")),
    *(OldRow("Squeeze", n, (Spec("f32", (1, 3, 1)),), {"axes": [0]}) for n in (1, 11)),
    *(OldRow("Unsqueeze", n, (X,), {"axes": [0, 2]}) for n in (1, 11)),
    OldRow("TopK", 1, (X,), {"k": 2, "axis": 1}, ("y", "i")),
    OldRow("TopK", 10, (X, Spec("i64", (1,), values=(3,), const=True)), {}, ("y", "i")),
    OldRow("Scatter", 9, (Spec("f32", (3, 3)), Spec("i64", (2, 3), 0, 2), Spec("f32", (2, 3)))),
    OldRow("OneHot", 9, (Spec("i64", (3,), 0, 3), Spec("i64", (1,), values=(4,), const=True), Spec("f32", (2,)))),
]
