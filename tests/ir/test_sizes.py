"""Sizes of any value: nothing that is computed from them wraps, and what is too large or negative is refused."""

from __future__ import annotations

import ctypes
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import irc
from irc.backends.c import prelude
from irc.backends.c.sizes import LARGEST_SIZE, LIMIT, CheckedSizes, Sizes, dim_text, with_operands
from irc.backends.c.text import CName
from irc.diagnostics.codes import runtime
from irc.expr import Load
from irc.ir.dim import Dim
from irc.ir.types import f32
from irc.loops.ir import Program
from irc.runtime.errors import InputValueError
from irc.toolchain.libraries import build
from tests.support.c_program import Library, buffer, elementwise

EXTREMES = (
    0,
    1,
    2,
    3,
    63,
    64,
    65,
    4097,
    46341,
    1 << 16,
    1 << 20,
    (1 << 21) + 1,
    1 << 30,
    LARGEST_SIZE - 1,
    LARGEST_SIZE,
)
TOO_LARGE = runtime.MODEL_TOO_LARGE.number


# ------------------------------------------------------------------------------------------------ the arithmetic itself
def random_dim(rng: np.random.Generator, symbols: list[Dim], depth: int) -> Dim:
    """A sum of products of symbols, numbers and functions of such sums."""
    total = Dim.of(int(rng.integers(-3, 4)))
    for _ in range(rng.integers(1, 4)):
        term = Dim.of(int(rng.choice([-64, -1, 1, 1, 2, 4, 8, 1 << 20, 1 << 33])))
        for _ in range(rng.integers(1, 4)):
            term = term * (
                function_of(rng, symbols, depth - 1) if depth and rng.random() < 0.4 else rng.choice(symbols)
            )
        total = total + term
    return total


def function_of(rng: np.random.Generator, symbols: list[Dim], depth: int) -> Dim:
    a, b = random_dim(rng, symbols, depth), Dim.of(int(rng.choice([2, 3, 64, 256])))
    return {
        "floordiv": lambda: a // b,
        "ceildiv": lambda: a.ceildiv(b),
        "mod": lambda: a % b,
        "min": lambda: a.minimum(random_dim(rng, symbols, depth)),
        "max": lambda: a.maximum(0),
    }[str(rng.choice(["floordiv", "ceildiv", "mod", "min", "max"]))]()


def random_product(rng: np.random.Generator, symbols: list[Dim]) -> Dim:
    """A product of sums with one symbol or quotient each, and now and then something more."""
    atoms = [*symbols, *((s - 1) // 32 for s in symbols)]
    chosen = rng.permutation(len(atoms))[: rng.integers(2, 5)]
    product = math.prod(
        (int(rng.integers(1, 5)) * atoms[k] + int(rng.integers(-2, 3)) for k in chosen), start=Dim.of(8)
    )
    return product + int(rng.choice([0, 0, 0, 8]))


@cache
def factors_of(dim: Dim) -> list[tuple[int, list[Dim]]]:
    """The terms: the absolute value of each coefficient, and its factors."""
    return [(abs(c), [Dim({(a,): 1}) for a in monomial]) for monomial, c in dim.terms]


def largest_sum(dim: Dim, values: dict[str, int]) -> int:
    """The absolute values of all terms together, where a factor of 0 counts as 1."""
    return sum(c * math.prod(max(abs(a.evaluate(values)), 1) for a in factors) for c, factors in factors_of(dim))


def test_accepted_sizes_are_computed_exactly(tmp_path: Path) -> None:
    """Any sum, product and quotient of sizes: refused, or what Python computes; refused only for their own size."""
    rng = np.random.default_rng(6105)
    symbols = {n: CName(n) for n in "ABC"}
    made = [Dim.symbol(s) for s in symbols]
    dims = [random_dim(rng, made, 2) for _ in range(60)] + [random_product(rng, made) for _ in range(30)]
    helpers = set[str]()
    text: list[str] = []

    def helper_name(name: str) -> str:
        helpers.add(name)
        return f"irc_{name}"

    load = "    const int64_t A = dims[0], B = dims[1], C = dims[2]; (void)A; (void)B; (void)C;"
    for k, dim in enumerate(dims):
        checked, plain = (
            CheckedSizes(symbols, symbols, helper_name, str(TOO_LARGE)),
            Sizes(symbols, symbols, helper_name),
        )
        checked.check([dim])
        value = plain.text(dim)
        body = [load, *checked.lines, "    {", *plain.lines, f"    *value = {value};", "    }", "    return 0;"]
        text += [f"int size{k}(const int64_t *dims, int64_t *value) {{", *body, "}"]
    top = "#include <stdint.h>\n" + prelude.text(helpers)
    (tmp_path / "sizes.c").write_text("\n".join([top, *text]) + "\n")
    library = ctypes.CDLL(str(build(tmp_path, ["sizes.c"], extra=("-Wall", "-Wextra", "-fvisibility=default"))))
    accepted, refused, operands = 0, 0, [list(with_operands([dim])) for dim in dims]
    for values in rng.choice(EXTREMES, (600, 3)).tolist():
        given, found = (ctypes.c_int64 * 3)(*values), ctypes.c_int64()
        known = dict(zip(symbols, values, strict=True))
        for k, dim in enumerate(dims):
            status = getattr(library, f"size{k}")(given, ctypes.byref(found))
            assert status in (0, TOO_LARGE)
            accepted, refused = accepted + (not status), refused + bool(status)
            if not status:
                assert found.value == dim.evaluate(known), (str(dim), values)
            else:
                largest = max(largest_sum(d, known) for d in operands[k])
                assert largest > LIMIT - (LIMIT >> 20), (str(dim), values)
    assert accepted > 10000 and refused > 10000


def test_products_are_printed_as_products() -> None:
    a, b, c = (Dim.symbol(n) for n in "abc")
    texts = {
        64 * (a + 1) * (b + 1) * c: "64 * c * (a + 1) * (b + 1)",
        (2 * a - 3) * (b + 1): "(2 * a - 3) * (b + 1)",
        3 * a * b + 3 * a: "3 * a * (b + 1)",
        a * b + a + b + 2: "a * b + a + b + 2",
        2 * a + 2: "2 * a + 2",
        -(a + 1) * (b - 1): "(a + 1) * (-b + 1)",
        (a // 2) * (b + 1) + a // 2: "(a / 2) * (b + 2)",
        a // 2: "a / 2",
    }
    assert [dim_text(dim, str, str) for dim in texts] == [*texts.values()]


# ------------------------------------------------------------------------------------------------------- whole models
def constant(name: str, data: Any, dtype: Any = np.int64) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(data, dtype), name)


def value(name: str, dims: Any, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, dims)


def test_a_quotient_of_numbers_is_a_number() -> None:
    n = Dim.symbol("n")
    assert (2 * n + 1) // 2 == n and (2 * n + 3) % 2 == 1


def compiled(nodes: Any, inputs: Any, constants: Any = (), outputs: Any = None, backend: str = "c") -> Any:
    """A model of these nodes whose output is y."""
    graph = helper.make_graph(nodes, "sizes", inputs, outputs or [value("y", None)], list(constants))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return irc.compile(made.SerializeToString(), backend=backend, cache=False)


def tiled(repeats: int, dims: list[Any]) -> Any:
    """Every second element, many times, summed up."""
    nodes = [
        helper.make_node("Slice", ["x", "a", "b", "i", "two"], ["h"]),
        helper.make_node("Tile", ["h", "times"], ["t"]),
        helper.make_node("CumSum", ["t", "zero"], ["c"]),
        helper.make_node("ReduceMax", ["c"], ["y"], keepdims=0),
    ]
    numbers = {"a": [0], "b": [2**62], "i": [0], "two": [2], "times": [repeats], "zero": 0}
    return compiled(nodes, [value("x", dims)], [constant(n, v) for n, v in numbers.items()])


def codes(error: pytest.ExceptionInfo[Any]) -> list[str]:
    return [d.code for d in error.value.diagnostics]


@pytest.mark.parametrize(("repeats", "dims", "code"), [(2**59, ["N"], "IRC5007"), (2**57, [16], "IRC5008")])
def test_sizes_that_no_input_makes_small_enough(repeats: int, dims: list[Any], code: str) -> None:
    """Of unknown sizes it is the arithmetic that cannot hold them, of known ones the memory of a run."""
    with pytest.raises(irc.CompileError) as e:
        tiled(repeats, dims)
    assert codes(e) == [code]


@pytest.mark.parametrize(("repeats", "dims"), [(2**62, ["N"]), (2**58, [16]), (2**62, [16])])
def test_tensors_that_are_too_large_in_themselves(repeats: int, dims: list[Any]) -> None:
    with pytest.raises(irc.InvalidModel) as e:
        tiled(repeats, dims)
    assert codes(e)[0] == "IRC3302"


@pytest.mark.parametrize("repeats", [2**33, 2**38])
def test_quotients_that_grow_beyond_the_limit(repeats: int) -> None:
    model = tiled(repeats, ["N"])
    with pytest.raises(InputValueError, match="IRC6105"):
        model(np.zeros(1 << 12, np.float32))


def test_tensors_that_are_together_too_large() -> None:
    """Four of 2^62 bytes; the empty input makes none of them empty."""
    steps = [("r", "i1", "c0", 0), ("r", "i0", "c1", 1), ("c0", "i1", "c2", 0)]
    nodes = [
        helper.make_node("ReduceSum", ["x", "i2"], ["r"], keepdims=0),
        *(helper.make_node("CumSum", [x, axis], [y], reverse=r) for x, axis, y, r in steps),
        helper.make_node("Sum", ["c0", "c1", "c2"], ["s"]),
        helper.make_node("ReduceMax", ["s"], ["y"], keepdims=0),
    ]
    numbers = [constant("i0", 0), constant("i1", 1), constant("i2", [2])]
    model = compiled(nodes, [value("x", ["A", "B", "C"])], numbers)
    with pytest.raises(InputValueError, match="IRC6105"):
        model(np.empty((2**30, 2**30, 0), np.float32))
    assert model(np.ones((1, 2, 3), np.float32))[0] == 18


def test_a_tensor_that_would_have_a_negative_size(tmp_path: Path) -> None:
    n = Dim.symbol("n")
    x, y = buffer("x", f32, (n,), "input"), buffer("y", f32, (n - 3,), "output")
    h = buffer("h", f32, (n - 3,), "arena")
    functions = [
        elementwise("crop", h, lambda i: Load(x, (i + 3,)), [x]),
        elementwise("copy", y, lambda i: Load(h, (i,)), [h]),
    ]
    library = Library(Program("m", [x], [y], [], functions, ["n"]), tmp_path)
    memory = library.context([7])
    for size in range(7):
        assert library.plan(memory, [size]) == (runtime.SIZE_NEGATIVE.number if size < 3 else 0)
    assert library.run(memory, [np.arange(6, dtype=np.float32)], [(3,)])[0].tolist() == [3, 4, 5]


def test_a_negative_size_of_an_output_is_no_lack_of_memory() -> None:
    crop = helper.make_node("Pad", ["x", "by"], ["y"])
    for backend in ("c", "numpy"):
        model = compiled([crop], [value("x", ["N"])], [constant("by", [-2, -2])], backend=backend)
        assert model.bind([np.arange(5, dtype=np.float32)])()[0].tolist() == [2]
        with pytest.raises(InputValueError):
            model.bind([np.zeros(3, np.float32)])
        with pytest.raises(InputValueError):
            model(np.zeros(3, np.float32))


def test_a_bias_that_is_shorter_than_the_channels() -> None:
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"])
    weights = constant("w", np.ones((3, 4, 3)), np.float32)
    for backend in ("c", "numpy"):
        model = compiled([node], [value("x", [1, 3, "N"]), value("b", ["B"])], [weights], backend=backend)
        x = np.zeros((1, 3, 2), np.float32)
        assert model(x, np.arange(4, dtype=np.float32))[0][0, :, 0].tolist() == [0, 1, 2, 3]
        for size in (0, 1, 3, 5):
            with pytest.raises(InputValueError, match="bias and output channels"):
                model(x, np.zeros(size, np.float32))


def test_what_reads_elements_of_an_empty_axis_refuses_it() -> None:
    """A transposed convolution and samples at positions: their results have elements, their operand has none."""
    weights = constant("w", np.ones((3, 4, 3)), np.float32)
    for backend in ("c", "numpy"):
        transposed = compiled(
            [helper.make_node("ConvTranspose", ["x", "w"], ["y"])],
            [value("x", [1, 3, "N"])],
            [weights],
            backend=backend,
        )
        with pytest.raises(InputValueError, match="axis 2 of x"):
            transposed(np.zeros((1, 3, 0), np.float32))
        sampled = compiled(
            [helper.make_node("GridSample", ["x", "g"], ["y"])],
            [value("x", [1, 1, "H", "W"]), value("g", [1, 2, 2, 2])],
            backend=backend,
        )
        with pytest.raises(InputValueError, match="axis 3 of x"):
            sampled(np.zeros((1, 1, 3, 0), np.float32), np.zeros((1, 2, 2, 2), np.float32))


TYPES = [
    TensorProto.BOOL,
    TensorProto.UINT8,
    TensorProto.INT8,
    TensorProto.UINT16,
    TensorProto.INT16,
    TensorProto.FLOAT16,
    TensorProto.BFLOAT16,
    TensorProto.INT32,
    TensorProto.UINT32,
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.UINT64,
    TensorProto.DOUBLE,
]


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("dtype", TYPES, ids=TensorProto.DataType.Name)
def test_every_element_type_of_symbolic_sizes(dtype: int, rank: int) -> None:
    names = ["A", "B", "C"][:rank]
    node = helper.make_node("Concat", ["x", "x"], ["y"], axis=0)
    model = compiled([node], [value("x", names, dtype)], (), [value("y", None, dtype)])
    for size in (0, 1, 3):
        x = np.ones((size,) * rank, model.inputs[0].dtype)
        np.testing.assert_array_equal(model(x)[0], np.concatenate([x, x]))
    if rank == 3 and x.itemsize < 8:  # NumPy itself refuses the others
        with pytest.raises(InputValueError, match="IRC6105"):
            model(np.empty((2**30, 0, 2**31 - 1), model.inputs[0].dtype))
