"""Splitting of loops: movements of many shapes copy runs, and compute what the references compute."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from irc import driver
from irc.ir.dim import Dim
from irc.ir.graph import Model, Value
from irc.ir.types import f32
from irc.opdef.base import load_all
from irc.opdef.builder import Builder
from tests.support.lowering import assert_same, graph_of, random

Build = Callable[[Builder, Value], Value]
LOOP = re.compile(r"( *)for \(")
DIVISION = re.compile(r" [/%] |irc_(mod|floordiv|rem)_")
load_all()


def pad(mode: str, *pads: int) -> Build:
    return lambda b, x: b.Pad(x, list(pads), b.like(0, x), mode=mode)


def resized(scale: float, how: str, nearest: str = "floor") -> Build:
    def build(b: Builder, x: Value) -> Value:
        scales = b.const(np.array([1, 1, scale, scale]), f32)
        return b.Resize(x, b.const([], f32), scales, mode="nearest", coordinates=how, nearest_mode=nearest)

    return build


def tile_and_add(b: Builder, x: Value) -> Value:
    return b.Mul(b.Add(b.Tile(x, [1, 2, 1, 3]), random(1, 1, 13, 33)), 2.0)


def shifted_tile(b: Builder, x: Value) -> Value:
    return b.Slice(b.Tile(x, [1, 1, 2, 5]), [3, 4], [25, 52], [2, 3])


def backwards(b: Builder, x: Value) -> Value:
    return b.Slice(b.Tile(x, [1, 1, 2, 5]), [-2, -3], [-100, -100], [2, 3], [-1, -1])


def tile_by_steps(b: Builder, x: Value) -> Value:
    return b.Slice(b.Tile(x, [1, 1, 2, 5]), [1, 2], [26, 55], [2, 3], [3, 2])


def regrouped(b: Builder, x: Value) -> Value:
    return b.Reshape(b.Transpose(b.Reshape(x, [3, 2, 13, 11]), [1, 0, 3, 2]), [2, 3, 11, 13])


def reshaped_transpose(b: Builder, x: Value) -> Value:
    return b.Reshape(b.Transpose(x, [0, 1, 3, 2]), [1, 6, 13, 11])


def joined(b: Builder, x: Value) -> Value:
    return b.Relu(b.Concat(b.Slice(x, [0], [4], [3]), b.Tile(x, [1, 1, 1, 2]), b.Neg(x), axis=3))


def shuffled(b: Builder, x: Value) -> Value:
    return b.Add(b.DepthToSpace(b.Concat(x, x, axis=1), block_size=2), 1.0)


def padded_tile(b: Builder, x: Value) -> Value:
    return b.Pad(b.Tile(x, [1, 1, 2, 2]), [0, 0, 1, 2, 0, 0, 3, 1], b.like(0, x), mode="reflect")


def stacked(b: Builder, x: Value) -> Value:
    return b.Concat(*(b.Pad(x, [0, 0, k, 1, 0, 0, 2 - k, 1], b.like(1, x)) for k in range(3)), axis=2)


def picked(*numbers: int) -> Build:
    return lambda b, x: b.Gather(x, b.const(np.array(numbers)), b.const(np.array(3)))


def picked_twice(b: Builder, x: Value) -> Value:
    return b.Add(picked(*np.repeat(range(6), 2))(b, x), picked(*np.repeat(range(4), 3))(b, x))


MOVES: dict[str, Build] = {
    "tile": lambda b, x: b.Tile(x, [1, 2, 1, 3]),
    "tile of batches": lambda b, x: b.Tile(x, [5, 1, 1, 1]),
    "tile of all": lambda b, x: b.Tile(b.Reshape(x, [-1]), [3]),
    "tile and add": tile_and_add,
    "part of a tile": shifted_tile,
    "part of a tile, backwards": backwards,
    "part of a tile, by steps": tile_by_steps,
    "constant": pad("constant", 0, 1, 2, 3, 1, 0, 4, 1),
    "reflect": pad("reflect", 0, 0, 2, 3, 0, 0, 4, 1),
    "edge": pad("edge", 0, 1, 2, 3, 0, 2, 4, 1),
    "edge of all": pad("edge", 1, 1, 2, 13, 2, 2, 14, 0),
    "symmetric": pad("symmetric", 0, 1, 2, 3, 0, 2, 4, 11),
    "wrap": pad("wrap", 0, 1, 2, 3, 0, 2, 4, 13),
    "crop": pad("edge", 0, -1, 2, -3, 0, 2, -4, 1),
    "nearest 2": resized(2.0, "asymmetric"),
    "nearest 3": resized(3.0, "half_pixel", "round_prefer_ceil"),
    "nearest 0.5": resized(0.5, "asymmetric"),
    "nearest 1.5": resized(1.5, "asymmetric"),
    "depth to space": lambda b, x: b.DepthToSpace(b.Concat(x, x, axis=1), block_size=2),
    "depth to space and add": shuffled,
    "space to depth": lambda b, x: b.SpaceToDepth(b.Tile(x, [1, 1, 2, 2]), block_size=2),
    "regrouped": regrouped,
    "reshaped transpose": reshaped_transpose,
    "concat": joined,
    "concat of padded": stacked,
    "padded tile": padded_tile,
    "slice": lambda b, x: b.Slice(x, [1, 2], [12, 11], [2, 3], [2, 3]),
    "indices in runs": picked(*np.repeat(range(9), 4)),
    "indices in runs of two lengths": picked_twice,
    "indices by steps": picked(9, 6, 3, 0),
    "roll": lambda b, x: b.Roll(x, [3, -4], [2, 3]),
}
# A position of which the divisor and the width have nothing in common changes somewhere else in every row.
UNEVEN = {"reshaped transpose"}


def innermost(text: str) -> Iterator[str]:
    """Yield the text of the loops without loops in them."""
    opened: list[tuple[int, int]] = []
    lines = text.split("\n")
    last = -1
    for number, line in enumerate(lines):
        if found := LOOP.match(line):
            opened.append((number, len(found[1])))
        elif opened and line == " " * opened[-1][1] + "}":
            first = opened.pop()[0]
            if first > last:
                yield "\n".join(lines[first : number + 1])
            last = number


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("shape", [(1, 6, 13, 11), (1, 6, 13, None)], ids=str)
def test_moves_compute_what_the_references_compute(name: str, shape: tuple[Any, ...]) -> None:
    if shape[-1] is None and name in ("tile and add", "regrouped", "reshaped transpose"):
        pytest.skip("states all sizes")
    x = random(1, 6, 13, 11)
    assert_same(graph_of(MOVES[name], x, shapes=[[Dim.symbol("W", 1) if d is None else d for d in shape]]), x)


def sources(build: Build, *shape: int) -> str:
    options = driver.CompileOptions(backend="c", cache=False)
    made = driver.sources(Model(graph_of(build, random(*shape))), options)
    return "\n".join(text for name, text in made.files.items() if name.endswith(".c") and isinstance(text, str))


@pytest.mark.parametrize("name", [n for n in MOVES if n not in UNEVEN])
@pytest.mark.parametrize("shape", [(1, 6, 13, 11), (2, 6, 30, 44)], ids=str)
def test_innermost_loops_of_moves_divide_nothing(name: str, shape: tuple[int, ...]) -> None:
    if shape[2] == 30 and name in ("tile and add", "regrouped"):
        pytest.skip("states all sizes")
    for body in innermost(sources(MOVES[name], *shape)):
        assert not DIVISION.search(body), body


@pytest.mark.parametrize("name", ["nearest 2", "indices in runs", "indices by steps"])
def test_regular_indices_are_no_table(name: str) -> None:
    assert "const int64_t *restrict" not in sources(MOVES[name], 1, 6, 12, 12)
    assert "const int64_t *restrict" in sources(picked(0, 1, 3, 2), 1, 6, 12, 12)


@pytest.mark.parametrize("seed", range(16))
def test_random_moves_after_each_other(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def build(b: Builder, x: Value) -> Value:
        for _ in range(3):
            x = step(b, x, rng)
        return b.Add(b.Abs(x), 1.0)

    x = random(1, 2, int(rng.integers(2, 6)), int(rng.integers(2, 12)), seed=seed)
    assert_same(graph_of(build, x), x)


def step(b: Builder, x: Value, rng: np.random.Generator) -> Value:
    """Move something: what, and how far, is drawn."""
    height, width = (int(d) for d in x.shape[2:])
    match int(rng.integers(8)):
        case 0:
            return b.Tile(x, [1, 1, *(int(n) for n in rng.integers(1, 4, 2))])
        case 1:
            mode = str(rng.choice(["constant", "edge", "wrap"]))
            pads = [int(n) for n in rng.integers(-1 if min(height, width) > 2 else 0, 4, 4)]
            return b.Pad(x, [0, 0, *pads[:2], 0, 0, *pads[2:]], b.like(0, x), mode=mode)
        case 2:
            most = [min(size - 1, 4) for size in (height, width)]
            pads = [int(rng.integers(0, n + 1)) for n in most * 2]
            return b.Pad(x, [0, 0, *pads[:2], 0, 0, *pads[2:]], b.like(0, x), mode="reflect")
        case 3:
            return b.Reshape(b.Transpose(x, [0, 1, 3, 2]), [1, -1, height, width])
        case 4:
            return b.Concat(x, b.Neg(x), axis=int(rng.integers(1, 4))) if height * width < 2000 else x
        case 5:
            by = int(rng.choice([-2, -1, 1, 2, 3]))
            ends = ([-1], [-1000]) if by < 0 else ([0], [1000])
            return b.Slice(x, *ends, [3], [by])
        case 6:
            return resized(float(rng.choice([2.0, 1.5])), "asymmetric")(b, x) if height * width < 2000 else x
        case _:
            return b.Reshape(x, [1, -1, width, height])
