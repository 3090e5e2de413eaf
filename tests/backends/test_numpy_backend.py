"""The NumPy backend: what the emitted module looks like, and that it stands alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import irc
from irc.backends.numpy.expressions import Expressions
from irc.backends.numpy.facts import OTHER, Array
from irc.backends.numpy.functions import Library
from irc.backends.numpy.lines import WIDTH, wrapped
from irc.backends.numpy.literals import literal
from irc.backends.numpy.module import Options, emit
from irc.backends.numpy.syntax import short_slices
from irc.opdef.base import Op
from irc.opdef.registry import OPS, load_all

load_all()


def graph_of(
    nodes: list[Any], shapes: dict[str, Any], outputs: list[str], weights: dict[str, Any] | None = None
) -> Any:
    """A loaded graph of f32 inputs."""
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    results = [helper.make_empty_tensor_value_info(n) for n in outputs]
    data = [numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()]
    proto = helper.make_graph(nodes, "g", infos, results, data)
    return irc.load(helper.make_model(proto, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))


def source_of(model: Any, **options: Any) -> str:
    return emit(model.graph.copy(), "g", Options(**options)).source


def function(source: str, name: str) -> str:
    found = next(n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and n.name == name)
    return ast.unparse(found)


CHAIN = [
    helper.make_node("Mul", ["x", "a"], ["t"], name="first"),
    helper.make_node("Add", ["t", "x"], ["u"], name="second"),
    helper.make_node("Sub", ["u", "a"], ["y"], name="third"),
]


def test_chain_is_one_function_that_reuses_its_memory() -> None:
    source = source_of(graph_of(CHAIN, {"x": [2, 3], "a": [2, 3]}, ["y"]))
    chain = function(source, "mul_add_sub")
    assert chain.count("out=t0") == 2
    assert "# first, second, third: f32[2,3]" in source
    ast.parse(source)


def test_memory_is_not_reused_where_shapes_differ() -> None:
    nodes = [helper.make_node("Mul", ["x", "x"], ["t"]), helper.make_node("Add", ["t", "a"], ["y"])]
    source = source_of(graph_of(nodes, {"x": [1, 3], "a": [2, 3]}, ["y"]))
    assert "out=" not in source


def test_value_used_twice_ends_a_chain() -> None:
    nodes = [helper.make_node("Mul", ["x", "x"], ["t"]), helper.make_node("Add", ["t", "t"], ["y"])]
    assert "def mul_add" in source_of(graph_of(nodes, {"x": [2]}, ["y"]))
    assert "def mul_add" not in source_of(graph_of(nodes, {"x": [2]}, ["y", "t"]))


def test_source_is_the_same_every_time() -> None:
    shapes = {"x": ["n", 3], "a": ["n", 3]}
    assert source_of(graph_of(CHAIN, shapes, ["y"])) == source_of(graph_of(CHAIN, shapes, ["y"]))


def test_attributes_become_literals_and_decided_branches_go() -> None:
    node = helper.make_node("Gemm", ["x", "w"], ["y"], transB=1, alpha=0.5)
    source = source_of(graph_of([node], {"x": [2, 4]}, ["y"], {"w": np.ones((3, 4), np.float32)}))
    assert "self" not in source
    assert "W.T" in source or "B.T" in source
    assert "A.T" not in source
    assert "0.5" in source


POOL_OF_Y = helper.make_node("MaxPool", ["y"], ["z"], kernel_shape=[2, 2])
POOL = helper.make_node("MaxPool", ["x"], ["y", "at"], kernel_shape=[2, 2], strides=[2, 2])


def test_results_that_nobody_reads_are_not_computed() -> None:
    shapes = {"x": ["n", 3, 8, 8]}
    assert "unravel_index" not in source_of(graph_of([POOL], shapes, ["y"]))
    assert "unravel_index" in source_of(graph_of([POOL], shapes, ["y", "at"]))
    largest = helper.make_node("TopK", ["x", "k"], ["", "at"])
    source = source_of(graph_of([largest], {"x": [2, 8]}, ["at"], {"k": np.array([3])}))
    assert "take_along_axis" not in source


def test_known_types_ranks_and_padding_leave_no_trace() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[0, 0, 0, 0])
    source = source_of(graph_of([node, POOL_OF_Y], {"x": ["n", 1, 8, 8]}, ["z"], {"w": np.ones((4, 1, 3, 3), "f4")}))
    for word in ("asarray", "astype", "np.pad", ".ndim", ".dtype", "None"):
        assert word not in source.partition("def run")[0].partition("def weight")[2], word


def test_checks_stay_where_the_result_of_the_checked_is_not_read() -> None:
    node = helper.make_node("TopK", ["x", "k"], ["y"])
    model = helper.make_model(
        helper.make_graph(
            [node],
            "g",
            [
                helper.make_tensor_value_info("x", TensorProto.FLOAT, [8]),
                helper.make_tensor_value_info("k", TensorProto.INT64, [1]),
            ],
            [helper.make_empty_tensor_value_info("y")],
        ),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    assert "raise ValueError" in source_of(irc.load(model))


def test_lines_and_docstrings() -> None:
    resize = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="cubic")
    source = source_of(graph_of([resize], {"x": ["n", 3, 8, 8]}, ["y"], {"s": np.ones(4, np.float32) * 2}))
    assert max(map(len, source.splitlines())) <= 120
    functions = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]
    assert [f.name for f in functions if not ast.get_docstring(f)] == []


def test_zero_dimensional_results_stay_arrays() -> None:
    compiled = irc.compile(graph_of(CHAIN, {"x": [], "a": []}, ["y"]), backend="numpy")
    (y,) = compiled(np.array(2, np.float32), np.array(3, np.float32))
    assert isinstance(y, np.ndarray)
    assert y.shape == ()
    assert y == 5


@pytest.mark.parametrize(("left", "right", "rank"), [(1, 1, None), (2, 1, None), (2, 2, 2), (3, 2, 3)])
def test_ranks_of_products(left: int, right: int, rank: int | None) -> None:
    """A product with a vector has fewer axes than its operands: what is not known is not claimed."""
    kind = np.dtype(np.float32)
    expressions = Expressions(Library(), {}, None, "")
    expressions.state.facts |= {"x": Array(kind, left), "y": Array(kind, right)}
    assert expressions.visit(ast.parse("x @ y", mode="eval").body)[1] == Array(kind, rank)


def test_inputs_are_never_written() -> None:
    x, a = np.ones((2, 3), np.float32), np.full((2, 3), 2, np.float32)
    irc.compile(graph_of(CHAIN, {"x": [2, 3], "a": [2, 3]}, ["y"]), backend="numpy")(x, a)
    assert (x == 1).all()
    assert (a == 2).all()


@pytest.mark.parametrize("weights", ["file", "embed"])
def test_module_runs_by_itself(tmp_path: Path, weights: str) -> None:
    """With nothing but NumPy: the script form reads and writes .npz files."""
    w = np.arange(60, dtype=np.float32).reshape(3, 20)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = graph_of([node], {"x": ["n", 3]}, ["y"], {"w": w})
    emitted = emit(model.graph.copy(), "g", Options(weights))
    (tmp_path / "model.py").write_text(emitted.source)
    if weights == "file":
        (tmp_path / "weights.bin").write_bytes(b"".join(emitted.weight_chunks()))
    assert "irc" not in {
        n.name for s in ast.walk(ast.parse(emitted.source)) if isinstance(s, ast.Import) for n in s.names
    }
    x = np.ones((2, 3), np.float32)
    np.savez(tmp_path / "in.npz", x=x)
    subprocess.run([sys.executable, "-I", "model.py", "in.npz", "out.npz"], check=True, cwd=tmp_path)
    with np.load(tmp_path / "out.npz") as found:
        np.testing.assert_array_equal(found["y"], x @ w)


ALONE = """import sys
sys.path += [{packages!r}]
sys.meta_path.insert(0, type("Only", (), {{"find_spec": staticmethod(
    lambda name, *_: name.partition(".")[0] in {refused!r} and sys.exit("imports " + name) or None)}}))
sys.argv[0] = "model.py"
import runpy
runpy.run_path("model.py", run_name="__main__")
"""


def alone(folder: Path, refused: set[str]) -> subprocess.CompletedProcess[str]:
    """model.py as a script, in.npz to out.npz, by a Python without site packages but those of NumPy's folder."""
    code = ALONE.format(packages=str(Path(np.__file__).parent.parent), refused=sorted(refused))
    command = [sys.executable, "-I", "-S", "-c", code, "in.npz", "out.npz"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


REFUSED = {"irc", "onnx", "networkx", "lxml", "scipy", "ml_dtypes"}


@pytest.mark.parametrize("ending", ["xml", "onnx"])
def test_a_sample_needs_numpy_only(tmp_path: Path, ending: str) -> None:
    samples = Path(__file__).resolve().parents[2] / "samples" / "digits"
    irc.compile(samples / f"digits.{ending}", backend="numpy").save(tmp_path)
    with np.load(samples / "heldout.npz") as held:
        image, label = held["image"], held["label"]
    np.savez(tmp_path / "in.npz", image=image)
    done = alone(tmp_path, REFUSED)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "out.npz") as found:
        assert (found["scores"].argmax(1) == label).sum() == 354


def test_narrow_types_need_ml_dtypes_besides(tmp_path: Path) -> None:
    """f32 in and out; f16 and bf16 in between."""
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
        helper.make_node("Mul", ["h", "h"], ["hh"]),
        helper.make_node("Cast", ["hh"], ["b"], to=TensorProto.BFLOAT16),
        helper.make_node("Add", ["b", "b"], ["bb"]),
        helper.make_node("Cast", ["bb"], ["y"], to=TensorProto.FLOAT),
    ]
    irc.compile(graph_of(nodes, {"x": ["n"]}, ["y"]), backend="numpy").save(tmp_path)
    np.savez(tmp_path / "in.npz", x=np.array([1, 1.1, -3.3, 1000], np.float32))
    assert "imports ml_dtypes" in alone(tmp_path, REFUSED).stderr
    done = alone(tmp_path, REFUSED - {"ml_dtypes"})
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "out.npz") as found:  # 1.1 squared is 1.2100 in f16 and 1.2109 in bf16
        assert found["y"].tolist() == [2, 2.421875, 21.75, np.inf]


def test_names_that_are_python_words_or_builtins() -> None:
    nodes = [
        helper.make_node("Mul", ["class", "list"], ["np"], name="1"),
        helper.make_node("Add", ["np", "1.x"], ["run"], name='"""'),
    ]
    compiled = irc.compile(graph_of(nodes, {"class": [2], "list": [2], "1.x": [2]}, ["run"]), backend="numpy")
    one = np.ones(2, np.float32)
    np.testing.assert_array_equal(compiled(one, one, one)[0], one + one)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -3,
        1.5,
        float("inf"),
        "a'b",
        b"x",
        (1,),
        [],
        {"a": (1, 2)},
        frozenset({1, 2}),
        frozenset(),
        set(),
        np.dtype("float32"),
        np.float16,
        np.float32(0.1),
        np.array([[1, 2]], np.int8),
        np.zeros((0, 2), np.float32),
    ],
    ids=repr,
)
def test_literals_evaluate_to_the_value(value: Any) -> None:
    text = literal(value)
    assert text is not None
    made = eval(text, {"np": np})
    assert type(made) is type(value)
    assert np.array_equal(made, value) if isinstance(value, np.ndarray) else made == value


@pytest.mark.parametrize(
    ("index", "short"),
    [
        ("x[..., None, slice(None)]", "x[..., None, :]"),
        ("x[*i, slice(None)]", "x[*i, :]"),
        ("x[i, slice(None), slice(None)]", "x[i,]"),
    ],
)
def test_whole_axes_at_the_end_of_an_index_are_left_out_where_nothing_counts_from_there(index: str, short: str) -> None:
    subscript = ast.parse(index, mode="eval").body
    assert isinstance(subscript, ast.Subscript)
    assert ast.unparse(ast.Subscript(subscript.value, short_slices(subscript.slice), ast.Load())) == short


def test_nan_is_written() -> None:
    assert literal(float("nan")) == "np.nan"
    assert literal(object()) is None


def with_defaults() -> list[Op]:
    """Every operation that has a reference of its own and needs no attribute."""
    found: list[Op] = []
    for cls in OPS.values():
        if cls.reference is not Op.reference:
            try:
                found.append(cls())
            except TypeError:
                continue
    return found


@pytest.mark.parametrize("op", with_defaults(), ids=lambda op: op.name)
def test_every_reference_can_be_written(op: Op) -> None:
    """Its source, specialised, is Python that mentions neither irc nor self."""
    library = Library()
    library.operation(op, [OTHER] * (op.sig.min_inputs + 2 * any(p.variadic for p in op.sig.inputs)))
    text = "\n".join(library.ordered())
    compile(text, op.name, "exec")
    names = {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}
    assert "self" not in names
    assert "irc" not in names


def test_lines_that_begin_with_the_end_of_another_are_broken_too() -> None:
    inner = ", ".join(f"operand_{k}" for k in range(20))
    text = wrapped(f"y = first({inner}) + second({inner}) + third({inner})")
    assert all(len(line) <= WIDTH for line in text.split("\n"))
    compile(text, "<text>", "exec")
