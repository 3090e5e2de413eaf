"""Random graphs: 3 to 25 nodes out of the rows of `tests/ops/cases`, wired to each other where types and ranks allow.

A drawn row gives the operation with attributes that belong together, and operands whose values it is defined for.  An
operand is then taken from the values that are there already, if one fits; else it is a new input or a constant.
Everything that is added has been computed by the references, so a graph has results, and none of them are infinite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import networkx as nx
import numpy as np

from irc.diagnostics import Problem
from irc.ir.dim import Dim
from irc.ir.graph import Constant, Graph, Model, Node, Value
from irc.ir.types import TensorType
from irc.opdef.builder import Builder, evaluate, run_reference
from tests.fuzz.seeds import rows
from tests.ops.cases import Case, Spec

Array = np.ndarray[Any, Any]
JUMPS = frozenset(
    {
        "ArgMax",
        "ArgMin",
        "BitCast",
        "Cast",
        "CastLike",
        "Ceil",
        "CropAndResize",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "Equal",
        "FakeQuantize",
        "Floor",
        "FloorMod",
        "Greater",
        "GreaterOrEqual",
        "GridSample",
        "Hardmax",
        "IsInf",
        "IsNaN",
        "Less",
        "LessOrEqual",
        "LpPool",
        "MaxPool",
        "Mod",
        "NonMaxSuppression",
        "NonZero",
        "NotEqual",
        "QuantizeLinear",
        "Range",
        "Resize",
        "RoiAlign",
        "Round",
        "Sign",
        "Sort",
        "TopK",
        "Trunc",
        "Unique",
    }
)
"""Operations whose results jump where their operands change a little: they get operands of their own, which are the
same for everybody; and so no difference in a last digit becomes a difference at all."""
VARYING = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"}
)
OF_NOTHING = frozenset({"ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceL2"})
"""Of no elements these are infinite or no number, which no integer can express."""
LARGEST = 1e3
"""Floats beyond this are not computed with further, so that tolerances keep their meaning."""
NODES = (3, 25)
STEP = {"f64": 1e-12, "f32": 1e-5, "f16": 2e-3, "bf16": 1e-2}
"""Relative changes of inputs under which the outputs of a graph may change but little."""


@dataclass
class Drawn:
    """A graph with an array for each input, and the value of each symbolic size."""

    model: Model
    feeds: list[Array]
    known: dict[Value, Any] = field(default_factory=dict[Value, Any])

    @property
    def wanted(self) -> list[Any]:
        """The outputs by the references."""
        return [self.known[v] for v in self.model.outputs]


@dataclass
class Drawing:
    """A graph while it is drawn; `symbols` says how sizes of inputs are declared: "none", "shared" or "own"."""

    rng: Random
    symbols: str
    graph: Graph = field(default_factory=lambda: Graph("fuzz"))
    known: dict[Value, Any] = field(default_factory=dict[Value, Any])

    def add(self, case: Case) -> bool:
        """Add a node of this row; False where it does not fit what is there."""
        before, inputs = set(self.known), list(self.graph.inputs)
        case = self.resized(case)
        try:
            operands = [self.operand(case, i) for i in range(len(case.inputs))]
            made = Builder(self.graph, f"n{len(self.graph)}").add_all(case.op, *operands)
        except Problem:
            self.forget(before, inputs)
            return False
        node = made[0].producer
        assert node is not None
        try:
            results = run_reference(node, [None if v is None else self.known[v] for v in node.inputs])
        except (ValueError, IndexError, ZeroDivisionError, OverflowError, TypeError, Problem):
            results = [np.array(np.nan)]  # sizes that only this graph combines: undefined
        if not all(tame(a) for a in results):
            self.graph.remove(node)
            self.forget(before, inputs)
            return False
        self.known.update(zip(made, results, strict=False))
        return True

    def forget(self, before: set[Value], inputs: list[Value]) -> None:
        """Take back inputs and constants that were added for a node that did not come to be."""
        self.graph.inputs = inputs
        self.known = {v: a for v, a in self.known.items() if v in before}

    def resized(self, case: Case) -> Case:
        """The row, now and then with one of its sizes 0 or 1 everywhere."""
        if case.op.name in OF_NOTHING and any(s is not None and s.type.is_integer for s in case.inputs):
            return case
        sizes = sorted({n for s in case.inputs if s is not None and s.values is None for n in s.shape})
        if not sizes or self.rng.random() > 0.12:
            return case
        old, new = self.rng.choice(sizes), self.rng.choice((0, 0, 1))

        def change(spec: Spec | None) -> Spec | None:
            if spec is None or spec.values is not None:
                return spec
            return replace(spec, shape=tuple(new if n == old else n for n in spec.shape))

        return replace(case, inputs=tuple(map(change, case.inputs)))

    def operand(self, case: Case, index: int) -> Value | None:
        """A value that is there already, a new input, or a constant."""
        spec = case.inputs[index]
        if spec is None:
            return None
        found = [v for v in self.known if self.fits(v, spec, case)]
        if found and self.rng.random() < 0.85:
            same = [v for v in found if np.shape(self.known[v]) == spec.shape]
            return self.rng.choice((same or found)[-6:] if self.rng.random() < 0.8 else found)
        if self.rng.random() < 0.5 and (adapted := self.adapted(case, spec)) is not None:
            return adapted
        array = spec.array(f"{case}/{index}/{self.rng.random()}")
        count = len(self.graph.inputs)
        if spec.const or self.rng.random() < 0.2:
            value = self.graph.add_constant(Constant.of(array, spec.type), f"c{len(self.known)}")
        else:
            shape = tuple(self.size(n, count, axis) for axis, n in enumerate(spec.shape))
            value = self.graph.add_input(f"x{count}", TensorType(spec.type, shape))
        self.known[value] = array
        return value

    def fits(self, value: Value, spec: Spec, case: Case, any_rank: bool = False) -> bool:
        """Whether a value may stand for an operand: type and rank agree, and the operation takes any element."""
        if spec.const or spec.values is not None or not isinstance(value.type, TensorType):
            return False
        free = spec.dtype == "bool" or (spec.type.is_float and (spec.low, spec.high) == (-2, 2))
        fixed = case.op.name in JUMPS and spec.type.is_float
        ranks = any_rank or np.ndim(self.known[value]) == len(spec.shape)
        kinds = value.dtype.is_float and spec.type.is_float if any_rank else value.dtype == spec.type
        return free and not fixed and kinds and ranks

    def adapted(self, case: Case, spec: Spec) -> Value | None:
        """A value of another shape, some of whose elements are taken in the operand's shape."""
        found = [v for v in self.known if np.size(self.known[v]) and self.fits(v, spec, case, any_rank=True)]
        if not found or not spec.shape:
            return None
        value = self.rng.choice(found[-8:])
        flat = self.apply("Reshape", value, [-1])
        if value.dtype != spec.type:
            flat = self.apply("Cast", flat, to=spec.type)
        indices = np.arange(int(np.prod(spec.shape))) % np.size(self.known[value])
        return self.apply("Reshape", self.apply("Gather", flat, indices, 0), list(spec.shape))

    def apply(self, name: str, *operands: Any, **attributes: Any) -> Value:
        """Add an operation that is defined for these operands; its result is known."""
        made: Value = getattr(Builder(self.graph, f"a{len(self.graph)}"), name)(*operands, **attributes)
        assert made.producer is not None
        arrays = [
            None if v is None else v.array if v.array is not None else self.known[v] for v in made.producer.inputs
        ]
        self.known[made] = run_reference(made.producer, arrays)[0]
        return made

    def size(self, n: int, count: int, axis: int) -> Dim:
        if self.symbols == "none" or self.rng.random() < 0.4:
            return Dim.of(n)
        return Dim.symbol(f"s{n}" if self.symbols == "shared" else f"s{count}_{axis}")


def tame(array: Any) -> bool:
    """Whether a result can be computed with further."""
    if not isinstance(array, np.ndarray) or array.dtype == object or array.dtype.kind == "c":
        return False
    if array.dtype.kind in "biu" or array.dtype.name.startswith(("int", "uint")):
        return True
    wide = np.abs(array.astype(np.float64))
    return bool(np.all(wide <= LARGEST))


def draw(rng: Random, wanted: Callable[[Case], bool] = lambda case: True) -> Drawn:
    """A graph of the rows that are `wanted`, with one to four outputs."""
    drawing = Drawing(rng, rng.choice(("none", "none", "shared", "shared", "own")))
    table = [c for c in rows() if c.op.name not in VARYING and wanted(c)]
    count = rng.randint(*NODES)
    for _ in range(6 * count):
        if len(drawing.graph) < count:
            drawing.add(rng.choice(table))
    graph = drawing.graph
    made = [v for node in graph.nodes for v in node.outputs if v in drawing.known]
    graph.outputs = sorted({*deepest(graph, made), *rng.sample(made, min(len(made), rng.randrange(2)))}, key=made.index)
    drawn = finished(graph, drawing.known)
    steady = [v for v, a in zip(graph.outputs, nearby(drawn, rng), strict=True) if near(a, drawn.known[v])]
    if not steady:
        return draw(rng, wanted)
    graph.outputs = steady
    return finished(graph, drawing.known)


def nearby(drawn: Drawn, rng: Random) -> list[Any]:
    """The outputs by the references if the inputs were different in their last digits."""
    noise = np.random.default_rng(rng.randrange(1 << 30))
    arrays: list[Array] = []
    for value, array in zip(drawn.model.inputs, drawn.feeds, strict=True):
        if value.dtype.name in STEP:
            array = array.astype(np.float64)
            array = (array * (1 + STEP[value.dtype.name] * noise.uniform(-1, 1, array.shape))).astype(value.dtype.numpy)
        arrays.append(array)
    try:
        return evaluate(drawn.model.graph, dict(zip(drawn.model.inputs, arrays, strict=True)))
    except ValueError:  # sizes that depend on data
        return [np.array(np.nan)] * len(drawn.model.outputs)


def near(got: Any, want: Any) -> bool:
    """Whether a result changed little: by less than what the comparison tolerates."""
    if np.shape(got) != np.shape(want):
        return False
    if want.dtype.kind in "biu" or want.dtype.name.startswith(("int", "uint")):
        return bool(np.array_equal(got, want))
    limit = 10 * {"float64": 1e-10, "float32": 1e-5}.get(want.dtype.name, 1e-2)
    wide = want.astype(np.float64)
    return bool(
        np.all(np.abs(got.astype(np.float64) - wide) <= limit * max(1.0, float(np.max(np.abs(wide), initial=0))))
    )


def deepest(graph: Graph, made: list[Value]) -> list[Value]:
    """Up to three values that together need as many nodes as possible."""
    chosen, covered = list[Value](), set[Node]()
    needs = {v: nx.ancestors(graph.dag, v.producer) | {v.producer} for v in made if v.producer is not None}
    while needs and len(chosen) < 3:
        best = max(needs, key=lambda v: len(needs[v] - covered))
        covered |= needs.pop(best)
        chosen.append(best)
    return chosen


def finished(graph: Graph, known: dict[Value, Any]) -> Drawn:
    """The graph without what reaches no output."""
    graph.prune()
    graph.inputs = [v for v in graph.inputs if v.uses or v in graph.outputs]
    model = Model(graph, "onnx", 10, {"": 21})
    return Drawn(model, [known[v] for v in graph.inputs], known)


# ------------------------------------------------------------------------------------ shrinking
def shrink(drawn: Drawn, fails: Callable[[Drawn], bool], tries: int = 60) -> Drawn:
    """The smallest graph found that still fails: one output, and values cut off from what computes them."""
    for value in drawn.model.outputs:
        one = only(drawn, [value.name], set())
        tries -= 1
        if len(drawn.model.outputs) > 1 and fails(one):
            drawn = one
            break
    cuts: set[str] = set()
    while tries > 0:
        for name in reversed([v.name for n in drawn.model.graph.nodes for v in n.outputs]):
            outputs = [v.name for v in drawn.model.outputs]
            if name in outputs or name in cuts:
                continue
            tries -= 1
            cuts.add(name)
            smaller = only(drawn, outputs, {name})
            if tries > 0 and len(smaller.model.graph) < len(drawn.model.graph) and fails(smaller):
                drawn = smaller
                break
        else:
            break
    return drawn


def only(drawn: Drawn, outputs: list[str], cuts: set[str]) -> Drawn:
    """A copy with only these outputs, and inputs in place of the values in `cuts`."""
    arrays = {v.name: a for v, a in drawn.known.items()}
    graph = drawn.model.graph.copy()
    values = {v.name: v for v in graph.values()}
    for name in cuts:
        old = values[name]
        fresh = graph.add_input(f"cut_{name}".replace("/", "_"), TensorType.of(old.dtype, np.shape(arrays[name])))
        graph.replace_uses(old, fresh)
        arrays[fresh.name] = arrays[name]
    graph.outputs = [values[name] for name in outputs]
    graph.prune()
    return finished(graph, {v: arrays[v.name] for v in {*graph.values(), *graph.inputs} if v.name in arrays})
