"""Images as C decodes them: a pass that puts decoders of `irc.kernels.image` in the place of ImageDecoder.

The header of a file gives the size of the result (docs/adr/0024-image-decoders.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from irc.diagnostics import Sink, require
from irc.diagnostics.codes import runtime as codes
from irc.expr import Expr, Tensor, index
from irc.ir.dim import Dim
from irc.ir.graph import Graph, Value
from irc.ir.relation import at_most, same
from irc.ir.types import TensorType, i64, u8, u32
from irc.kernels.image.kernel import ImageKernel, scratch_bytes
from irc.loops import builder
from irc.loops.ir import KernelCall
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.opdef.signature import Sig
from irc.ops.image import ImageDecoder
from irc.passes.replace import put_in_place

WEIGHTS = (19595, 38470, 7471)
"""Of red, green and blue in a grey, in 65536ths."""
HEADER = 3
"""Numbers that a decoder tells about a file: height, width, how many rows it has decoded."""


@dataclass(frozen=True)
class ImageHeader(Op):
    """Height and width of an encoded image, 0 if it has no valid header, and a third number that says nothing."""

    sig: ClassVar[Sig] = Sig("encoded: u8[1] -> header: i64")
    at_run_only: ClassVar[bool] = True

    def infer(self, encoded: Value) -> TensorType:
        return TensorType.of(i64, [HEADER])

    def loops(self, b: builder.LoopBuilder, encoded: builder.Place, header: builder.Place) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Call the function."""
        assert encoded.buffer is not None and header.buffer is not None
        sizes = (index(encoded.shape[0]),)
        b.add(KernelCall(ImageKernel(header_only=True), (encoded.buffer,), (header.buffer,), sizes))


@dataclass(frozen=True)
class DecodedImage(Op):
    """The pixels of an encoded image, in RGB, and its header, whose third number is 0 if the file is damaged."""

    sig: ClassVar[Sig] = Sig("encoded: u8[1] -> header: i64, pixels: u8")
    at_run_only: ClassVar[bool] = True

    def infer(self, encoded: Value) -> Sequence[TensorType]:
        height = Dim.fresh("height")
        require(at_most(1, height), codes.IMAGE_DAMAGED)
        return TensorType.of(i64, [HEADER]), TensorType.of(u8, [height, Dim.fresh("width"), 3])

    def run_sizes(self, b: Builder, out: Any, encoded: Value) -> Iterable[tuple[Dim, Value]]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Read the header."""
        header = b.add(ImageHeader(), encoded)
        for k in range(2):
            yield out[1].shape[k], b.Slice(header, [k], [k + 1], [0])

    def loops(
        self, b: builder.LoopBuilder, encoded: builder.Place, header: builder.Place, pixels: builder.Place
    ) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Call the function."""
        assert encoded.buffer is not None and header.buffer is not None and pixels.buffer is not None
        (count,), (height, width, _) = encoded.shape, pixels.shape
        room = scratch_bytes(height, width, count)
        scratch = b.alloc(u8, [room])
        assert scratch.buffer is not None
        sizes = tuple(map(index, (count, height, width, room)))
        writes = (header.buffer, pixels.buffer)
        b.add(KernelCall(ImageKernel(), (encoded.buffer,), writes, sizes, (scratch.buffer,)))


@dataclass(frozen=True)
class DecodedRows(Op):
    """The rows of an image that could be decoded, which must be all, in another order of channels or in grey."""

    pixel_format: str
    sig: ClassVar[Sig] = Sig("header: i64[1], pixels: u8[3] -> image: u8")
    at_run_only: ClassVar[bool] = True

    def infer(self, header: Value, pixels: Value) -> TensorType:
        height, width, _ = pixels.shape
        rows = Dim.fresh("rows", height)
        require(same(rows, height), codes.IMAGE_DAMAGED)
        return TensorType.of(u8, [rows, width, 1 if self.pixel_format == "Grayscale" else 3])

    def run_sizes(self, b: Builder, out: TensorType, header: Value, pixels: Value) -> Iterable[tuple[Dim, Value]]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Take the third number."""
        yield out.dims()[0], b.Slice(header, [2], [3], [0])

    def compute(self, out: TensorType, header: Tensor, pixels: Tensor) -> Callable[[Any, Any, Any], Expr]:  # pyright: ignore[reportIncompatibleVariableOverride]
        def element(y: Any, x: Any, c: Any) -> Expr:
            if self.pixel_format != "Grayscale":
                return pixels[y, x, 2 - c if self.pixel_format == "BGR" else c]
            parts = [pixels[y, x, k].cast(u32) * weight for k, weight in enumerate(WEIGHTS)]
            return ((parts[0] + parts[1] + parts[2] + (1 << 15)) // (1 << 16)).cast(u8)

        return element


def run(graph: Graph, sink: Sink) -> None:
    """Put decoders in the place of ImageDecoder, in place."""
    for node in list(graph.nodes):
        if not isinstance(node.op, ImageDecoder):
            continue
        with sink.catching(node.loc):
            b = Builder(graph, node.name or node.op.name, node.loc, layers=node.layers)
            header, pixels = b.add_all(DecodedImage(), *node.inputs)
            made = b.add(DecodedRows(node.op.pixel_format), header, pixels)
            put_in_place(graph, node.outputs[0], made)
    graph.prune()
