"""Blocks of space moved into channels or batches and back, and channels among themselves.

Sources: ONNX DepthToSpace, SpaceToDepth; OpenVINO specification, DepthToSpace-1, SpaceToDepth-1, BatchToSpace-2,
SpaceToBatch-2, ShuffleChannels-1.
"""

from __future__ import annotations

import math

from irc.diagnostics import Facts, require
from irc.diagnostics.codes import operation, shape as codes
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import at_most, multiple
from irc.ir.types import ANY, INTEGERS, NUMERIC, TensorType
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Codec, Enum, Int
from irc.opdef.forms import Form
from irc.opdef.signature import Sig
from irc.opdef.typesets import ONNX_ALL, OV_ANY, onnx_all
from irc.ops.layout import constant_ints, normal_axis, reshaped

ONNX_MODE = Enum({"DCR": "blocks_first", "CRD": "depth_first"}, "blocks_first")
OV_BLOCKS: dict[str, Codec] = {
    "block_size": Int(lo=1),
    "mode": Enum(["blocks_first", "depth_first"], assumed="blocks_first"),
}


def square(op: DepthToSpace | SpaceToDepth, x: Value) -> bool:
    """ONNX has two spatial axes."""
    return len(x.shape) == 4


class Blocks(Op):
    """What both directions share; `mode` says whether blocks or channels vary slower in the channel axis."""

    def _checked(self, x: Value) -> int:
        """The number of spatial axes."""
        require(len(x.shape) >= 3, codes.WRONG_RANK, op=self.name, operand="x", type=x.tensor, expected="3 or more")
        return len(x.shape) - 2


@op
class DepthToSpace(Blocks):
    """[N, C·bᵏ, D₁ …] → [N, C, D₁·b …], b being `block_size`."""

    block_size: int
    mode: str = "blocks_first"
    sig = Sig("x: T[>=3] -> y: T", T=ANY)

    def infer(self, x: Value) -> TensorType:
        k = self._checked(x)
        n, channels, *space = x.shape
        blocks = self.block_size**k
        facts: Facts = {"op": "DepthToSpace", "what": f"number of channels of {x.tensor}", "value": channels}
        require(multiple(channels, blocks), codes.SIZE_RANGE, **facts, expected=f"a multiple of {blocks}")
        return TensorType(x.dtype, (n, channels // blocks, *(d * self.block_size for d in space)))

    def reference(self, x: Array) -> Array:
        n, channels, *space = x.shape
        k, b = len(space), self.block_size
        left = channels // b**k
        if self.mode == "blocks_first":
            parts, order = (n, *[b] * k, left, *space), [0, k + 1]
            pairs = [(k + 2 + j, 1 + j) for j in range(k)]
        else:
            parts, order = (n, left, *[b] * k, *space), [0, 1]
            pairs = [(k + 2 + j, 2 + j) for j in range(k)]
        moved = x.reshape(parts).transpose(order + [axis for pair in pairs for axis in pair])
        return moved.reshape(n, left, *[d * b for d in space])

    def decompose(self, b: Builder, x: Value) -> Value:
        out, size = self.infer(x), self.block_size
        n, left = out.dims()[:2]
        space = x.shape[2:]
        k = len(space)
        if self.mode == "blocks_first":
            parts, order = [n, *[size] * k, left, *space], [0, k + 1]
            pairs = [(k + 2 + j, 1 + j) for j in range(k)]
        else:
            parts, order = [n, left, *[size] * k, *space], [0, 1]
            pairs = [(k + 2 + j, 2 + j) for j in range(k)]
        moved = b.Transpose(reshaped(b, x, parts), [*order, *(axis for pair in pairs for axis in pair)])
        return reshaped(b, moved, out.dims())

    onnx = (
        Form("DepthToSpace", 1, attrs={"blocksize": Int(to="block_size", lo=1)}, T=ONNX_ALL, when=square),
        Form("DepthToSpace", 11, attrs={"blocksize": Int(to="block_size", lo=1), "mode": ONNX_MODE}),
        Form("DepthToSpace", 13, T=onnx_all(13)),
        Form("DepthToSpace", 28),
    )
    openvino = (Form("DepthToSpace", 1, attrs=OV_BLOCKS, T=OV_ANY),)


@op
class SpaceToDepth(Blocks):
    """[N, C, D₁·b …] → [N, C·bᵏ, D₁ …], b being `block_size`."""

    block_size: int
    mode: str = "blocks_first"
    sig = Sig("x: T[>=3] -> y: T", T=ANY)

    def infer(self, x: Value) -> TensorType:
        k, b = self._checked(x), self.block_size
        n, channels, *space = x.shape
        for axis, d in enumerate(space, start=2):
            facts: Facts = {"op": "SpaceToDepth", "what": f"size of axis {axis} of {x.tensor}", "value": d}
            require(multiple(d, b), codes.SIZE_RANGE, **facts, expected=f"a multiple of {b}")
        return TensorType(x.dtype, (n, channels * b**k, *(d // b for d in space)))

    def reference(self, x: Array) -> Array:
        n, channels, *space = x.shape
        k, b = len(space), self.block_size
        parts = [n, channels]
        for d in space:
            parts += [d // b, b]
        blocks, places = [3 + 2 * j for j in range(k)], [2 + 2 * j for j in range(k)]
        order = [0, *blocks, 1, *places] if self.mode == "blocks_first" else [0, 1, *blocks, *places]
        return x.reshape(parts).transpose(order).reshape(n, channels * b**k, *[d // b for d in space])

    def decompose(self, b: Builder, x: Value) -> Value:
        out = self.infer(x)
        parts: list[Dim | int] = list(x.shape[:2])
        for d in out.dims()[2:]:
            parts += [d, self.block_size]
        k = len(x.shape) - 2
        blocks, places = [3 + 2 * j for j in range(k)], [2 + 2 * j for j in range(k)]
        order = [0, *blocks, 1, *places] if self.mode == "blocks_first" else [0, 1, *blocks, *places]
        return reshaped(b, b.Transpose(reshaped(b, x, parts), order), out.dims())

    onnx = (
        Form("SpaceToDepth", 1, attrs={"blocksize": Int(to="block_size", lo=1)}, T=ONNX_ALL, when=square),
        Form("SpaceToDepth", 13, T=onnx_all(13)),
        Form("SpaceToDepth", 28, attrs={"blocksize": Int(to="block_size", lo=1), "mode": ONNX_MODE}),
    )
    openvino = (Form("SpaceToDepth", 1, attrs=OV_BLOCKS, T=OV_ANY),)


@op
class ShuffleChannels(Op):
    """The groups of an axis interleaved: element i of each of the `group` groups, then element i + 1 of each."""

    axis: int = 1
    group: int = 1
    sig = Sig("x: T -> y: T", T=NUMERIC)

    def infer(self, x: Value) -> TensorType:
        size = x.shape[normal_axis(self.name, self.axis, len(x.shape))]
        facts: Facts = {"op": self.name, "what": f"size of axis {self.axis} of {x.tensor}", "value": size}
        require(multiple(size, self.group), codes.SIZE_RANGE, **facts, expected=f"a multiple of {self.group}")
        return x.tensor

    def reference(self, x: Array) -> Array:
        axis = self.axis % x.ndim
        parts = x.reshape(*x.shape[:axis], self.group, x.shape[axis] // self.group, *x.shape[axis + 1 :])
        return parts.swapaxes(axis, axis + 1).reshape(x.shape)

    def decompose(self, b: Builder, x: Value) -> Value:
        axis = self.axis % len(x.shape)
        parts = [*x.shape[:axis], self.group, x.shape[axis] // self.group, *x.shape[axis + 1 :]]
        order = [*range(axis), axis + 1, axis, *range(axis + 2, len(parts))]
        return reshaped(b, b.Transpose(reshaped(b, x, parts), order), x.shape)

    openvino = (Form("ShuffleChannels", 1, attrs={"axis": Int(1), "group": Int(1, lo=1)}, T=NUMERIC),)


class Batches(Op):
    """What both directions between batch and space share."""

    def _numbers(self, x: Value, *operands: Value) -> list[list[int]]:
        """The numbers for all axes of the block's shape and of two other operands.  Raises Problem."""
        found: list[list[int]] = []
        for param, operand in zip(self.sig.inputs[1:], operands, strict=True):
            numbers = constant_ints(self.name, param.name, operand)
            facts: Facts = {"op": self.name, "attribute": param.name}
            needed = len(x.shape)
            require(len(numbers) == needed, operation.ATTRIBUTE_LENGTH, **facts, given=len(numbers), needed=needed)
            least = 0 if found else 1
            for number in numbers:
                expected = f"at least {least}"
                require(number >= least, operation.ATTRIBUTE_RANGE, **facts, value=number, expected=expected)
            found.append(numbers)
        one = found[0][:1] == [1]
        facts = {"op": self.name, "attribute": "block_shape", "value": found[0][:1], "expected": "1 for the batch"}
        require(one and not found[1][0] and not found[2][0], operation.ATTRIBUTE_RANGE, **facts)
        return found


@op
class BatchToSpace(Batches):
    """[N·b₁·b₂ …, D₁, D₂ …] → [N, D₁·b₁, D₂·b₂ …], from which crops are cut off."""

    sig = Sig("x: T[>=2], block_shape: I[1], crops_begin: I[1], crops_end: I[1] -> y: T", T=ANY, I=INTEGERS)

    def decompose(self, b: Builder, x: Value, block_shape: Value, crops_begin: Value, crops_end: Value) -> Value:
        block, begins, ends = self._numbers(x, block_shape, crops_begin, crops_end)
        n, *space = x.shape
        every, rank = math.prod(block), len(space)
        facts: Facts = {"op": self.name, "what": f"size of axis 0 of {x.tensor}", "value": n}
        require(multiple(n, every), codes.SIZE_RANGE, **facts, expected=f"a multiple of {every}")
        pairs = [axis for k in range(rank) for axis in (rank + 1 + k, k)]
        moved = b.Transpose(reshaped(b, x, [*block[1:], n // every, *space]), [rank, *pairs])
        whole = [n // every, *(d * size for d, size in zip(space, block[1:], strict=True))]
        y = reshaped(b, moved, whole)
        for k, d in enumerate(whole):
            facts = {"op": self.name, "what": f"size of axis {k} of the result", "value": d}
            expected = f"at least {begins[k] + ends[k]}"
            require(at_most(begins[k] + ends[k], d), codes.SIZE_RANGE, **facts, expected=expected)
        if not any((*begins, *ends)):
            return y
        stops = [d - end for d, end in zip(whole, ends, strict=True)]
        return b.Slice(y, b.const(begins), b.dims(stops), list(range(rank + 1)))

    openvino = (Form("BatchToSpace", 2, T={"T": OV_ANY, "I": INTEGERS}),)


@op
class SpaceToBatch(Batches):
    """[N, D₁·b₁, D₂·b₂ …] → [N·b₁·b₂ …, D₁, D₂ …], after zeros are put around."""

    sig = Sig("x: T[>=2], block_shape: I[1], pads_begin: I[1], pads_end: I[1] -> y: T", T=ANY, I=INTEGERS)

    def decompose(self, b: Builder, x: Value, block_shape: Value, pads_begin: Value, pads_end: Value) -> Value:
        block, begins, ends = self._numbers(x, block_shape, pads_begin, pads_end)
        x = b.Pad(x, b.const([*begins, *ends])) if any((*begins, *ends)) else x
        n, *space = x.shape
        parts: list[Dim | int] = [n]
        for axis, (d, size) in enumerate(zip(space, block[1:], strict=True), start=1):
            facts: Facts = {"op": self.name, "what": f"size of axis {axis} of the padded {x.tensor}", "value": d}
            require(multiple(d, size), codes.SIZE_RANGE, **facts, expected=f"a multiple of {size}")
            parts += [d // size, size]
        rank = len(space)
        order = [*(2 * k + 2 for k in range(rank)), 0, *(2 * k + 1 for k in range(rank))]
        sizes = [d // size for d, size in zip(space, block[1:], strict=True)]
        return reshaped(b, b.Transpose(reshaped(b, x, parts), order), [n * math.prod(block), *sizes])

    openvino = (Form("SpaceToBatch", 2, T={"T": OV_ANY, "I": INTEGERS}),)
