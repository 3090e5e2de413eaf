"""The onnx.backend face of irc: `prepare`, `run_model`, `run_node`, `supports_device`, `is_compatible`.

The module itself uses the default backend; `irc.backend.c` and `irc.backend.numpy` are pinned to one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import onnx
from onnx.backend.base import Backend, BackendRep

import irc


class Prepared(BackendRep):
    """A compiled model, as onnx.backend wants it."""

    def __init__(self, compiled: irc.CompiledModel) -> None:
        self.compiled = compiled

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs for a list of inputs (a dict by name, or one array)."""
        several = isinstance(inputs, list | tuple | dict)
        return tuple(
            self.compiled(inputs)
            if isinstance(inputs, dict)
            else self.compiled(*inputs)
            if several
            else self.compiled(inputs)
        )


class IrcBackend(Backend):
    """irc with the backend its class attribute names; None chooses by the machine."""

    backend: str | None = None

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether irc reads the model without an error."""
        return cls.supports_device(device) and not any(d.severity == "error" for d in irc.validate(model))

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        """Compile the model; options are those of `irc.compile`.  InvalidModel, CompileError."""
        options: dict[str, Any] = {"cache": False, **kwargs}
        return Prepared(irc.compile(model, backend=cls.backend, **options))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Compile and run."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one node, whose operands' types are those of the arrays given.

        `opset_version` (keyword) is the opset of the node's domain, by default the newest.
        """
        opset = int(kwargs.pop("opset_version", onnx.defs.onnx_opset_version()))
        given = iter(cast("Iterable[Any]", inputs) if isinstance(inputs, list | tuple) else [inputs])
        feeds = {name: next(given) for name in node.input if name}
        infos = [_info(name, value) for name, value in feeds.items()]
        results = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "node", infos, results)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(node.domain, opset)])
        return cls.run_model(model, feeds, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Only the CPU."""
        return device.split(":", maxsplit=1)[0].upper() == "CPU"


def _info(name: str, value: Any) -> onnx.ValueInfoProto:
    import numpy as np

    if isinstance(value, list | tuple):
        items = list(cast("Iterable[Any]", value))
        element: np.ndarray[Any, Any] = np.asarray(items[0]) if items else np.zeros(0, np.float32)
        kind = onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(element.dtype), None)
        return onnx.helper.make_value_info(name, onnx.helper.make_sequence_type_proto(kind))
    array = np.asarray(value)
    element_type = (
        onnx.TensorProto.STRING if array.dtype.kind in "OUS" else onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    )
    return onnx.helper.make_tensor_value_info(name, element_type, array.shape)


class _C(IrcBackend):
    backend = "c"


class _Numpy(IrcBackend):
    backend = "numpy"


c = _C
numpy = _Numpy
prepare = IrcBackend.prepare
run_model = IrcBackend.run_model
run_node = IrcBackend.run_node
supports_device = IrcBackend.supports_device
is_compatible = IrcBackend.is_compatible
