"""What operations demand of sizes that only a run tells: every operation's cases with other sizes than their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import irc
from irc.diagnostics import CompileError, Problem, RunError, require
from irc.diagnostics.codes import shape as codes
from irc.ir.dim import Dim
from irc.ir.graph import Model
from irc.ir.relation import any_of, at_most, broadcasts, every, multiple, recording, same as equal, stretches_to
from irc.ir.types import string
from irc.loops import interp
from tests.ops.cases import Case
from tests.ops.test_ops import FAMILIES, compiles_to_c, same
from tests.support.lowering import compiled as lowered
from tests.support.perturbed import Shapes, Symbolic, perturbed, symbolic

N, M = Dim.symbol("N"), Dim.symbol("M")


# ---------------------------------------------------------------------------------- relations
@pytest.mark.parametrize(
    ("relation", "holds"),
    [
        (equal(N, M), lambda n, m: n == m),
        (at_most(N, M * 2), lambda n, m: n <= 2 * m),
        (multiple(N, M), lambda n, m: m > 0 and n % m == 0),
        (broadcasts(N, M), lambda n, m: n == m or (n == 1 and m) or (m == 1 and n)),
        (stretches_to((N,), (Dim.of(3), M)), lambda n, m: n in (1, m)),
        (every(at_most(N, 2), any_of(equal(M, 1), equal(M, 3))), lambda n, m: n <= 2 and m in (1, 3)),
    ],
)
def test_relations(relation: Any, holds: Any) -> None:
    """Values, text and negated text of a relation say the same."""
    words = {"and": "and", "or": "or"}
    text, negated = (relation.text(lambda d: f"({d})".replace("//", "//"), words, n) for n in (False, True))
    for n in range(5):
        for m in range(5):
            want = bool(holds(n, m))
            assert relation.holds({"N": n, "M": m}) is want
            assert relation.subs({"N": n, "M": m}).decide() is want or m == 0
            if m:
                assert eval(text, {"N": n, "M": m}) is want and eval(negated, {"N": n, "M": m}) is not want
    assert relation.decide() is None


def test_what_is_certain_is_not_recorded() -> None:
    with recording() as found:
        require(equal(N, N), codes.SIZES_DIFFER, op="a")
        require(at_most(0, N), codes.SIZES_DIFFER, op="b")
        require(broadcasts(1, N), codes.SIZES_DIFFER, op="c")
        require(equal(N, M), codes.SIZES_DIFFER, op="d", what="these", a=N, b=M)
        with pytest.raises(Problem):
            require(equal(N + 1, N), codes.SIZES_DIFFER, op="e")
    assert [d.message for d in found] == ["d: these must be equal, but are N and M"]


# ------------------------------------------------------------------------------------ models
def model(op: str, shapes: dict[str, Any], constants: dict[str, Any] | None = None, **attributes: Any) -> Any:
    """A model of one ONNX node whose operands are inputs of f32 (of i64 where the name has capitals) and constants."""
    kinds = {n: TensorProto.FLOAT if n.islower() else TensorProto.INT64 for n in shapes}
    inputs = [helper.make_tensor_value_info(n, kinds[n], s) for n, s in shapes.items()]
    given = [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in (constants or {}).items()]
    results = ["y", ""] if op == "TopK" else ["y"]
    node = helper.make_node(op, [*shapes, *(constants or {})], results, name="here", **attributes)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", inputs, [y], given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=8)


MISFITS: list[tuple[Any, dict[str, Any], str]] = [
    (model("Concat", {"x": "AC", "z": "BD"}, axis=0), {"x": (3, 64), "z": (2, 3)}, "IRC3108"),
    (model("Expand", {"x": "NM"}, {"s": [50, 60]}), {"x": (4, 5)}, "IRC3101"),
    (model("Pad", {"x": ["N", 4]}, {"p": [2, 0, 0, 0]}, mode="reflect"), {"x": (2, 4)}, "IRC3109"),
    (model("Einsum", {"x": "AB", "z": "CD"}, equation="ij,jk->ik"), {"x": (2, 64), "z": (3, 5)}, "IRC3108"),
    (model("TopK", {"x": "NM"}, {"k": [30]}), {"x": (2, 9)}, "IRC3109"),
    (model("MatMul", {"x": "AB", "z": "CD"}), {"x": (2, 64), "z": (3, 5)}, "IRC3104"),
    (
        model("LSTM", {"x": ["T", "N", 3], "w": "DGS", "r": "DGH"}, hidden_size=4),
        {"x": (2, 3, 3), "w": (1, 1, 1), "r": (1, 1, 1)},
        "IRC3108",
    ),
    (
        model("GroupNormalization", {"x": ["N", "C", 3], "s": "D", "b": "D"}, num_groups=2),
        {"x": (2, 7, 3), "s": (1,), "b": (1,)},
        "IRC3108",
    ),
]


@pytest.mark.parametrize("backend", ["numpy", "c"])
@pytest.mark.parametrize(("source", "shapes", "code"), MISFITS, ids=lambda v: "")
def test_misfits_are_refused_before_the_run(source: Any, shapes: dict[str, Any], code: str, backend: str) -> None:
    """By an error with the operation, its place, the sizes with their inputs, and the code that generated C returns."""
    compiled = irc.compile(source, backend=backend)
    arrays = {n: np.ones(s, np.float32) for n, s in shapes.items()}
    with pytest.raises(ValueError, match=rf"IRC6313: {source.graph.node[0].op_type}: .*axis . of '.'.*{code}.*here"):
        compiled(arrays)
    if backend == "c":
        compiled._check.constraints = []  # what a caller from C sees
        with pytest.raises(ValueError, match=code):
            compiled(arrays)


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("source", "numbers"),
    [
        (model("TopK", {"x": "NM", "K": [1]}), [2]),
        (model("Pad", {"x": "NM", "P": [4]}), [1, 0, 2, 3]),
        (model("Expand", {"x": "NM", "S": [2]}), [3, 4]),
        (model("Slice", {"x": "NM", "A": [2], "B": [2]}), [0, 1]),
        (model("Reshape", {"x": "NM", "S": [2]}), [2, 6]),
        (model("Tile", {"x": "NM", "R": [2]}), [2, 3]),
        (model("Split", {"x": "NM", "L": [1]}, axis=0), [3]),
    ],
    ids=lambda v: v.graph.node[0].op_type if not isinstance(v, list) else "",
)
def test_sizes_that_only_running_tells(source: Any, numbers: list[int]) -> None:
    """Also where nobody stores the tensor that has them."""
    total = helper.make_node("ReduceSum", ["y"], ["sum"], keepdims=0)
    source.graph.node.append(total)
    source.graph.output[0].name = "sum"
    *_, last = (i.name for i in source.graph.input)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    feeds = {i.name: x if i.name == "x" else np.array(numbers, np.int64) for i in source.graph.input}
    if last == "B":
        feeds["B"] = np.array([2, 3], np.int64)
    c, numpy = (irc.compile(source, backend=b, cache=False) for b in ("c", "numpy"))
    np.testing.assert_allclose(c(feeds)[0], numpy(feeds)[0])


def test_far_reflections_are_refused() -> None:
    """As ONNX Runtime and OpenVINO do."""
    found = irc.validate(model("Pad", {"x": [3, 4]}, {"p": [3, 0, 0, 0]}, mode="reflect"))
    assert [d.code for d in found] == ["IRC3109"]
    assert not irc.validate(model("Pad", {"x": [3, 4]}, {"p": [2, 0, 2, 0]}, mode="reflect"))


# ------------------------------------------------------------------------------- other sizes
def check(case: Symbolic, run: Any, step: int = 1) -> list[str]:
    """What is wrong with `run`, which computes the results or raises ValueError or RunError, at other sizes, or at each
    `step`-th of them."""
    own: Shapes = tuple(a.shape for a in case.arrays)
    wrong: list[str] = []
    for shapes in (own, *list(perturbed(case))[::step]):
        arrays = case.resized(shapes)
        want = case.expected(arrays)
        try:
            got = run(arrays)
        except (ValueError, RunError) as e:
            if shapes == own:
                wrong.append(f"{case.case} refused: {e}")
            continue
        if isinstance(want, IndexError):  # values out of range: nothing is promised but that nothing is read there
            continue
        if isinstance(want, Exception):
            wrong.append(f"{case.case} with {shapes} computed what the reference refuses: {want}")
            continue
        try:
            for g, w in zip(got, want, strict=True):
                same(g, w, max(case.case.rtol, 1e-5))
        except AssertionError as e:
            wrong.append(f"{case.case} with {shapes}: {' '.join(str(e).split())[:200]}")
    return wrong


def sample(cases: list[Case]) -> list[Case]:
    """A case of every operation."""
    return list({case.op.name: case for case in reversed(cases)}.values())


def interpreted(cases: list[Case], step: int = 1) -> list[str]:
    """What is wrong with the loops of cases: reading outside of an operand is an IndexError."""
    wrong: list[str] = []
    for case in filter(compiles_to_c, cases):
        made = symbolic(case)
        if made is not None and any(v.tensor.dtype == string for v in made.graph.outputs):  # a pass of C's makes pairs
            continue
        try:
            program = None if made is None else lowered(made.graph)
        except (CompileError, Problem):  # sizes that depend on data
            continue
        if made is not None and program is not None:
            wrong += check(made, lambda arrays, program=program: interp.run(program, arrays), step)
    return wrong


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_loops_of_other_sizes(family: str) -> None:
    wrong = interpreted(sample(FAMILIES[family]), 24)
    assert not wrong, "\n".join(wrong)


@pytest.mark.full
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_loops_of_other_sizes_of_every_case(family: str) -> None:
    wrong = interpreted(FAMILIES[family])
    assert not wrong, "\n".join(wrong)


def both(case: Symbolic, backend: str) -> list[str]:
    """What is wrong with a backend at other sizes; in C what Python checks on entry is left to C."""
    try:
        model = irc.compile(Model(case.graph, "onnx", 10, {"": 25}), backend=backend, cache=False)
    except CompileError as e:
        assert all(d.code in ("IRC5003", "IRC5004") for d in e.diagnostics), e
        return []
    if backend == "c":
        model._check.constraints = []
    return check(case, model)


IN_C = ("concat", "gather", "scatter", "matmul", "norm", "sort", "einsum", "softmax")


@pytest.mark.compiler
@pytest.mark.parametrize("family", IN_C)
def test_c_of_other_sizes(family: str) -> None:
    made = filter(None, map(symbolic, filter(compiles_to_c, sample(FAMILIES[family])[:2])))
    wrong = [w for case in made for w in both(case, "c")]
    assert not wrong, "\n".join(wrong)


@pytest.mark.full
@pytest.mark.compiler
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_c_of_other_sizes_of_every_operation(family: str) -> None:
    made = filter(None, map(symbolic, filter(compiles_to_c, sample(FAMILIES[family]))))
    wrong = [w for case in made for w in both(case, "c")]
    assert not wrong, "\n".join(wrong)


def test_sizes_that_only_a_run_tells_keep_their_names() -> None:
    """The Shape of a tensor whose padding is an input."""
    tensor = helper.make_tensor_value_info
    nodes = [helper.make_node("Pad", ["x", "pads"], ["p"]), helper.make_node("Shape", ["p"], ["s"])]
    nodes.append(helper.make_node("Expand", ["one", "s"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [tensor("x", TensorProto.FLOAT, [2, 3]), tensor("pads", TensorProto.INT64, [4])],
        [tensor("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.float32([1]), "one")],
    )
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()
    (y,) = irc.compile(source, backend="numpy", cache=False)(np.ones((2, 3), np.float32), np.int64([1, 0, 2, 4]))
    assert y.shape == (5, 7)
