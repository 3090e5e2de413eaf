"""Constants, sizes and operands of a run give the same results: operation × integer type × extremes.

Each cell of the table is computed from initializers, from the shape of an input, and from inputs, by NumPy and by C;
ONNX Runtime judges where it supports the type and its result is defined (docs/adr/0008 lists where it is not).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import irc

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
OPSET = 22
SMALL = 60
"""Elements of an operand in which shape arithmetic follows each."""
COMPARISONS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
BINARY = (
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Mod",
    "Mod fmod=1",
    "Pow",
    "Min",
    "Max",
    "BitShift direction=LEFT",
    "BitShift direction=RIGHT",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    *COMPARISONS,
)
REDUCTIONS = ("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceL1", "ReduceSumSquare")
CASTS = tuple(f"Cast to={getattr(TensorProto, n.upper())}" for n in (*INTEGERS, "bool", "float", "double"))
UNARY = ("Neg", "Abs", "Sign", "BitwiseNot", "CumSum", *REDUCTIONS, *CASTS)
SIZES = (0, 1, 2, 7, 11, 12, 127, 128, 200, 255, 256, 300, 32768, 65535, 65536, 2**31 - 1, 2**31, 2**32 + 3, 2**39)

C_SIZES = 2**31 - 1
"""What model.h allows."""


def values(name: str) -> np.ndarray[Any, Any]:
    """The extremes of an integer type, and what lies around zero and around the widths of types."""
    info = np.iinfo(name)
    near = [info.min, info.min + 1, -100, -12, -3, -2, -1, 0, 1, 2, 3, 5, 7, 8, 16, 31, 32, 63, 64, 100]
    return np.array(sorted({v for v in (*near, info.max - 1, info.max) if info.min <= v <= info.max}), name)


def takes(op: str, name: str) -> bool:
    """Whether ONNX has the operation for the type."""
    kind = np.dtype(name)
    if op == "Pow":
        return kind.itemsize > 2 and kind.kind == "i"
    if op.startswith("BitShift"):
        return kind.kind == "u"
    if op == "Neg":
        return kind.kind == "i"
    if op == "CumSum":
        return name in ("int32", "int64", "uint32", "uint64")
    if op.startswith("Reduce"):
        return kind.itemsize > 2 or (op in ("ReduceMax", "ReduceMin") and kind.itemsize == 1)
    return True


def judged(op: str, name: str, *xs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Where ONNX Runtime's result is defined; docs/adr/0008 says what irc computes elsewhere."""
    info, exact = np.iinfo(name), [x.astype(object) for x in xs]
    if op in ("Div", "Mod", "Mod fmod=1"):
        x, y = exact
        fits = (y != 0) & ~((x == info.min) & (y == -1))
        return fits & (abs(x) < 2**53) & (abs(y) < 2**53) if op == "Mod fmod=1" else fits
    if op == "Pow":  # it is computed in f64
        with np.errstate(all="ignore"):
            power = np.power(*(x.astype(np.float64) for x in xs))
        return (np.abs(power) < min(2.0**53, info.max)) & (abs(exact[1]) < 2**53)
    if op in REDUCTIONS and op not in ("ReduceMax", "ReduceMin"):
        (x,) = exact
        parts = [*np.cumsum(abs(x)), *(np.cumprod(x) if op == "ReduceProd" else x * x if "Square" in op else ())]
        return np.array(max(abs(p) for p in parts) * len(x) <= min(2**53, info.max))
    return np.ones(np.broadcast_shapes(*(x.shape for x in xs)), bool)


def node(op: str, inputs: list[str], output: str) -> Any:
    name, *attributes = op.split()
    given: dict[str, Any] = {}
    for attribute in attributes:
        key, text = attribute.split("=")
        given[key] = int(text) if text.isdigit() else text
    if name.startswith("Reduce"):
        given["keepdims"] = 1
    return helper.make_node(name, [*inputs, *(["axis"] if name == "CumSum" else [])], [output], **given)


@dataclass
class Table:
    """One model: its nodes, and what feeds them."""

    opset: int = OPSET

    def __post_init__(self) -> None:
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.constants = [numpy_helper.from_array(np.int64(0), "axis")]
        self.outputs: list[str] = []
        self.feeds: dict[str, Any] = {}
        self.known: dict[tuple[bool, str], list[str]] = {}

    def operand(self, array: np.ndarray[Any, Any], constant: bool) -> str:
        """The name of an initializer or input with that data."""
        names = self.known.setdefault((constant, array.tobytes().hex() + str((array.dtype, array.shape))), [])
        if not names:
            names.append(f"{'c' if constant else 'x'}{len(self.known)}")
            if constant:
                self.constants.append(numpy_helper.from_array(array, names[0]))
            else:
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                self.inputs.append(helper.make_tensor_value_info(names[0], kind, array.shape))
                self.feeds[names[0]] = array
        return names[0]

    def add(self, op: str, inputs: list[str]) -> None:
        self.outputs.append(f"y{len(self.outputs)}")
        self.nodes.append(node(op, inputs, self.outputs[-1]))

    def model(self) -> bytes:
        unknown = [helper.make_tensor_value_info(o, TensorProto.UNDEFINED, None) for o in self.outputs]
        for value in unknown:
            value.ClearField("type")
        graph = helper.make_graph(self.nodes, "table", self.inputs, unknown, self.constants)
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()

    def run(self, backend: str, **feeds: Any) -> list[np.ndarray[Any, Any]]:
        compiled = irc.compile(self.model(), backend=backend, cache=False)
        return [np.asarray(y) for y in compiled({**self.feeds, **feeds})]


Cell = tuple[str, tuple[np.ndarray[Any, Any], ...]]
"""An operation and its operands."""


@cache
def cells(name: str) -> list[Cell]:
    v = values(name)
    x, y = (a.ravel() for a in np.meshgrid(v, v))
    found: list[Cell] = [(op, (v,)) for op in UNARY if takes(op, name)]
    found += [(op, (v[k : k + 3],)) for op in REDUCTIONS if takes(op, name) for k in range(0, len(v) - 2, 3)]
    return found + [(op, (x, y)) for op in BINARY if takes(op, name)]


def small(cell: Cell) -> list[Cell]:
    """The cell in parts that shape arithmetic takes."""
    op, operands = cell
    count = operands[0].size
    return [(op, tuple(a[k : k + SMALL] for a in operands)) for k in range(0, count, SMALL)]


def table(chosen: list[Cell], constant: bool, opset: int = OPSET) -> Table:
    made = Table(opset)
    for op, operands in chosen:
        made.add(op, [made.operand(a, constant) for a in operands])
    return made


def constants(chosen: list[Cell], backend: str, opset: int = OPSET) -> list[np.ndarray[Any, Any]]:
    """The results of every cell as constants, in small parts."""
    found = iter(table([part for cell in chosen for part in small(cell)], True, opset).run(backend))
    return [np.concatenate([np.atleast_1d(next(found)) for _ in small(cell)]) for cell in chosen]


def differences(chosen: list[Cell], found: list[Any], expected: list[Any]) -> list[str]:
    wrong: list[str] = []
    for (op, operands), f, e in zip(chosen, found, expected, strict=True):
        if f.dtype != e.dtype:
            wrong.append(f"{op}: {f.dtype}, not {e.dtype}")
        for k in np.flatnonzero(np.ravel(f) != np.ravel(e))[:2]:
            of = [a[k] if a.size == np.size(f) else a.tolist() for a in operands]
            wrong.append(f"{op} of {of}: {np.ravel(f)[k]}, not {np.ravel(e)[k]}")
    return wrong


@pytest.mark.parametrize("name", INTEGERS)
def test_constants_are_what_a_run_computes(name: str) -> None:
    chosen = cells(name)
    running = table(chosen, constant=False).run("numpy")
    assert not differences(chosen, constants(chosen, "numpy"), running)
    assert not differences(chosen, constants(chosen, "c"), running)
    assert not differences(chosen, table(chosen, constant=False).run("c"), running)


def test_shifts_of_signed_integers() -> None:
    """ONNX has them since opset 28, which ONNX Runtime does not know yet."""
    for name in INTEGERS[:4]:
        v = values(name)
        x, y = (a.ravel() for a in np.meshgrid(v, v))
        chosen: list[Cell] = [(f"BitShift direction={way}", (x, y)) for way in ("LEFT", "RIGHT")]
        running = table(chosen, constant=False, opset=28).run("numpy")
        assert not differences(chosen, constants(chosen, "numpy", 28), running)
        assert not differences(chosen, table(chosen, constant=False, opset=28).run("c"), running)


@pytest.mark.parametrize("name", INTEGERS)
def test_onnx_runtime_agrees(name: str) -> None:
    ort = pytest.importorskip("onnxruntime")
    ort.set_default_logger_severity(4)
    wrong: list[str] = []
    for op in dict.fromkeys(op for op, _ in cells(name)):  # a model each: it lacks some types
        chosen: list[Cell] = []
        for operands in (operands for o, operands in cells(name) if o == op):
            keep = judged(op, name, *operands)
            chosen.append((op, tuple(np.where(keep, a, np.ones((), name)) for a in operands)))
        made = table(chosen, constant=False)
        try:
            session = ort.InferenceSession(made.model(), providers=["CPUExecutionProvider"])
        except Exception as e:
            if "NOT_IMPLEMENTED" not in str(e):
                raise
            continue
        wrong += differences(chosen, made.run("numpy"), session.run(None, made.feeds))
    assert not wrong


# --------------------------------------------------------------------------- sizes
NUMBERS = (-7, -1, 1, 2, 5, 100)


def symbolic(name: str) -> Table:
    """Operations on the size n of an axis, converted to the type, and on numbers."""
    made = Table()
    made.inputs.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 0]))
    made.nodes.append(helper.make_node("Shape", ["x"], ["long"], end=1))
    made.nodes.append(node(f"Cast to={getattr(TensorProto, name.upper())}", ["long"], "n"))
    _operations(made, name, "n")
    return made


def direct(name: str) -> Table:
    """The same operations on an input."""
    made = Table()
    made.inputs.append(helper.make_tensor_value_info("n", getattr(TensorProto, name.upper()), [1]))
    _operations(made, name, "n")
    return made


def _operations(made: Table, name: str, n: str) -> None:
    numbers = [np.array([k], name) for k in NUMBERS if k >= np.iinfo(name).min]
    for op in UNARY:
        if takes(op, name):
            made.add(op, [n])
    for op in BINARY:
        if takes(op, name):
            made.add(op, [n, n])
            for k in numbers:
                made.add(op, [n, made.operand(k, constant=True)])
                made.add(op, [made.operand(k, constant=True), n])
    first = len(made.outputs)
    for k in numbers:  # what rounds, compares or counts after arithmetic that may wrap
        for outer in ("Div", "Mod", "Max", "Less"):
            for inner in ("Sub", "Mul"):
                made.add(inner, [n, made.operand(k, constant=True)])
                made.add(outer, [made.outputs[-1], made.operand(np.array([3], name), constant=True)])
    made.add("Concat axis=0", [made.outputs[first], n])


@pytest.mark.parametrize("backend", ["numpy", "c"])
@pytest.mark.parametrize("name", INTEGERS)
def test_sizes_are_what_a_run_computes(name: str, backend: str) -> None:
    sizes = irc.compile(symbolic(name).model(), backend=backend, cache=False)
    operands = irc.compile(direct(name).model(), backend="numpy", cache=False)
    made = direct(name)
    for n in SIZES:
        if n > C_SIZES and backend == "c":
            continue
        x = np.empty((n, 0), np.float32)
        found, expected = sizes([x]), operands([np.array([n], np.int64).astype(name)])
        wrong = [
            f"{node.op_type} {list(node.input)}: {f}, not {e}"
            for node, f, e in zip(made.nodes, found, expected, strict=True)
            if np.any(np.asarray(f) != np.asarray(e))
        ]
        assert not wrong, f"n = {n}: {wrong[:10]}"
