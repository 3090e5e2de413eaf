"""Run chains of kernels in bands of rows, so that what stands between them stays in a core's own caches.

A depthwise convolution of large planes, channels last, waits for memory, as does a product of single pixels in front of
it or behind it: each reads what the one before has written long ago.  In bands, all of them do some rows of the result
before the next ones.  The rows that a window meets again are moved to the front, so that nothing is computed twice;
tensors between kernels are as large as a band.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, cast

from irc.expr import Const, Expr, Load, Var, constant_of
from irc.ir.dim import Dim
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import DType, i64
from irc.kernels.conv.depthwise_nhwc import NhwcDepthwiseKernel
from irc.kernels.core import choices
from irc.kernels.core.isa import Isa
from irc.kernels.gemm.packed import GemmKernel
from irc.kernels.gemm.small_b import SmallBGemmKernel
from irc.loops import builder
from irc.loops.ir import Alloc, Buffer, KernelCall
from irc.opdef.base import Op
from irc.opdef.signature import Sig
from irc.passes.replace import replace_value
from irc.selection.selector import KernelOp

PRODUCTS = (GemmKernel, SmallBGemmKernel)
FAR = 4 << 20
"""Bytes of the tensors between kernels, at least: the last cache holds smaller ones well enough."""
BAND, LEAST = 0.7, 512 << 10
"""The part of the second cache that they fill in bands; and bytes of it, at least, where a target may have less."""
PARTS, AGAIN = 8, 12
"""Parts for the threads, at most: each computes the rows that its first windows share with another, of so many rows."""


@dataclass(frozen=True)
class Window:
    """Rows of windows: how many rows of taps, their stride and dilation, the rows above the input, and its rows."""

    taps: int
    stride: int
    dilation: int
    padding: int
    size: int

    @property
    def span(self) -> int:
        """The rows from the first to the last of a window."""
        return (self.taps - 1) * self.dilation + 1

    def rows(self, first: int, end: int) -> tuple[int, int]:
        """Return the rows of the input, from and to, that the rows of the result from `first` to `end` meet."""
        top = first * self.stride - self.padding
        return max(top, 0), min((end - 1) * self.stride - self.padding + self.span, self.size)


@dataclass(frozen=True)
class Step:
    """A kernel of a chain.

    operands: of what the node reads, what the kernel does; None for the result of the step before, which is its first.
    width: pixels of a row of the result.  window: what rows it reads; None of a product, which reads those it writes.
    """

    op: KernelOp
    operands: tuple[int | None, ...]
    width: int
    window: Window | None = None

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The sizes of the kernel's call for the whole tensor."""
        return sizes_of(self.op)

    def rows(self, first: int, end: int) -> tuple[int, int]:
        """Return the rows of the input, from and to, that the rows of the result from `first` to `end` need."""
        return self.window.rows(first, end) if self.window else (first, end)

    def row_of(self, operand: int) -> int:
        """Return how many elements a row is of what the kernel reads: of its input, of an operand of the epilogue."""
        if operand == 0:
            return self.sizes["x_row"] if self.window else self.width * self.sizes["a_row"]
        pixel = f"s{operand - 2}_{'pixel' if self.window else 'row'}"
        return self.width * self.sizes.get(pixel, 0)

    @property
    def row(self) -> int:
        """The elements of a row of the result."""
        return self.width * self.sizes["y_pixel" if self.window else "c_row"]

    def reads_of(self, b: builder.LoopBuilder, first: Expr, end: Expr) -> tuple[Expr, Expr]:
        """Compute `rows` in a run."""
        if self.window is None:
            return first, end
        w = self.window
        stop = (end - 1) * w.stride + (w.span - w.padding)
        return b.let((first * w.stride - w.padding).max(0), "begin"), b.let(stop.min(w.size), "stop")

    def for_rows(self, first: Expr, end: Expr, begin: Expr, stop: Expr) -> dict[str, Expr]:
        """Return the sizes of a call for rows of the result, from and to, that has those of the input."""
        if self.window is None:
            return {"m": (end - first) * self.width}
        above = (self.window.padding - first * self.window.stride).max(0)
        return {"oh": end - first, "ih": stop - begin, "pad_h": above}


@dataclass(frozen=True)
class Call:
    """What a step does in a band: the rows of its result and those it reads, from and to.

    kept: rows of the latter that the band before has left in memory.
    """

    first: int
    end: int
    begin: int
    stop: int
    kept: int


def calls_of(steps: Sequence[Step], rows: int, parts: int, count: int) -> Iterator[list[Call]]:
    """Yield what each step does in each of `count` bands of each part of a chain's rows."""
    for part in range(parts):
        done = [0] * len(steps)  # the end of the rows of each step's input that its memory holds
        for at in range(part * count, (part + 1) * count):
            band, wanted = list[Call](), (rows * at // (parts * count), rows * (at + 1) // (parts * count))
            for k in reversed(range(len(steps))):
                begin, stop = steps[k].rows(*wanted)
                kept = max(0, done[k] - begin)
                band.append(Call(*wanted, begin, stop, kept))
                done[k], wanted = stop, (begin + kept, stop)
            yield band[::-1]


@dataclass(frozen=True)
class Bands(Op):
    """Kernels that read one another's results, run in bands of rows of the last one's, in parts for the threads.

    count: bands of a part.  between: the types of what each step but the first reads of the one before.
    """

    steps: tuple[Step, ...]
    rows: int
    parts: int
    count: int
    between: tuple[DType, ...]
    sig: ClassVar[Sig] = Sig("*xs: any -> y: any")

    def spelled(self) -> str:
        """Spell the kernels as graphs are printed."""
        return f"Bands[{self.parts * self.count} of {self.rows} rows: {', '.join(s.op.spelled() for s in self.steps)}]"

    def loops(self, b: builder.LoopBuilder, *operands: builder.Place) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Divide the rows among threads, each of which calls the kernels band after band."""
        *xs, y = (x.buffer for x in operands)
        bands = [*calls_of(self.steps, self.rows, self.parts, self.count)]
        idle = {i for band in bands for i, call in enumerate(band) if call.first == call.end}
        with b.for_(self.parts, "parallel", "part") as part:
            memory = list[Buffer]()
            for i, (dtype, held) in enumerate(zip(self.between, _between(self.steps, bands), strict=True)):
                memory.append(Buffer(f"rows{i}", dtype, (Dim.of(held),), "local", origin=b.origin))
                b.add(Alloc(memory[-1]))
            done = {i: (b.var(0, "low"), b.var(0, "high")) for i, step in enumerate(self.steps) if i and step.window}
            with b.for_(self.count, name="band") as band:
                at = part * self.count + band
                first, end = (
                    b.let((at + k) * self.rows // len(bands), name) for k, name in enumerate(("first", "end"))
                )
                self._band(b, (first, end), done, idle, (xs, memory, y))

    def _band(
        self,
        b: builder.LoopBuilder,
        wanted: tuple[Expr, Expr],
        done: Mapping[int, tuple[Var, Var]],
        idle: Collection[int],
        buffers: tuple[Sequence[Buffer | None], Sequence[Buffer], Buffer | None],
    ) -> None:
        """Call the kernels for the rows of a band.

        done: of each window's input, the rows that its memory holds; idle: steps that have nothing to do in some bands,
        whose windows meet no other rows than those before.
        """
        xs, memory, y = buffers
        calls = list[tuple[Expr, Expr, Expr, Expr, Expr]]()  # as `Call`
        for i, step in reversed([*enumerate(self.steps)]):
            begin, stop = step.reads_of(b, *wanted)
            kept: Expr = Const(0, i64)
            if i in done:
                low, high = done[i]
                kept, row = b.let((high - begin).max(0), "kept"), self.steps[i - 1].row
                moved = b.let((begin - low) * row, "moved")
                with b.for_(kept * row, "simd") as at:
                    b.store(memory[i - 1], (at,), Load(memory[i - 1], (at + moved,)))
                b.assign(low, begin)
                b.assign(high, stop)
            calls.append((wanted[0], wanted[1], begin, stop, kept))
            wanted = (b.let(begin + kept, "fresh"), stop) if i in done else (begin, stop)
        calls.reverse()
        for i, (step, (first, end, begin, stop, _)) in enumerate(zip(self.steps, calls, strict=True)):
            reads, starts = list[Buffer](), list[Expr]()
            for at, (k, base) in enumerate(zip(step.operands, step.op.starts, strict=False)):
                buffer, row = memory[i - 1] if k is None else xs[k], step.row_of(at)
                assert buffer is not None
                reads.append(buffer)
                starts.append(base if k is None or not row else base + (begin if at == 0 else first) * row)
            if i < len(memory):
                writes, place = memory[i], calls[i + 1][-1] * step.row
            else:
                assert y is not None
                writes, place = y, step.op.starts[-1] + first * step.row
            sizes = step.for_rows(first, end, begin, stop)
            given = tuple(sizes.get(n, e) for n, e in zip(step.op.kernel.sizes, step.op.sizes, strict=True))
            flops = step.op.kernel.flops(dims_of(step.op))
            call = KernelCall(step.op.kernel, tuple(reads), (writes,), given, (), (*starts, place))
            with b.if_(first.lt(end)) if i in idle else nullcontext():
                b.add(replace(call, alone=True, flops=flops))


def dims_of(op: KernelOp) -> dict[str, Dim]:
    """Return the sizes of a kernel's call as `Kernel.flops` takes them."""
    return {name: Dim.of(n) for name, n in sizes_of(op).items()}


def sizes_of(op: KernelOp) -> dict[str, int]:
    """Return the sizes of a kernel's call, which are known."""
    return {name: int(cast("int", constant_of(e))) for name, e in zip(op.kernel.sizes, op.sizes, strict=True)}


def run(graph: Graph, isa: Isa) -> int:
    """Run chains in bands, in place. Returns how many."""
    if not choices.current().bands:
        return 0
    done = 0
    for node in graph.nodes:
        if _is_depthwise(node.op) and (found := _chain(graph, node)):
            done += _replace(graph, found, isa)
    return done


def _chain(graph: Graph, node: Node) -> list[Node]:
    """Find the kernels around a depthwise convolution that read one another's results; none if there is but one."""
    op = cast("KernelOp", node.op)
    sizes, x = sizes_of(op), node.inputs[0]
    before = x.producer if x is not None else None
    after = graph.only_use(node.outputs[0])
    chain = [node]
    plane, pixels = sizes["ih"] * sizes["iw"], sizes["oh"] * sizes["ow"]
    contiguous = sizes["x_row"] == sizes["iw"] * sizes["x_pixel"] and constant_of(op.starts[0]) == 0
    if before is not None and contiguous and graph.only_use(before.outputs[0]) is node and node.inputs.count(x) == 1:
        of = _of_product(before.op)
        if of.get("m") == plane and of["c_row"] == sizes["x_pixel"] == of["n"]:
            chain.insert(0, before)
    if after is not None and after.inputs.count(node.outputs[0]) == 1 and (of := _of_product(after.op)):
        reads = of["a_row"], of["a_col"], constant_of(cast("KernelOp", after.op).starts[0])
        if after.inputs[0] is node.outputs[0] and of["m"] == pixels and reads == (sizes["y_pixel"], 1, 0):
            chain.append(after)
    return chain if len(chain) > 1 else []


def _replace(graph: Graph, chain: Sequence[Node], isa: Isa) -> bool:
    """Put one node in the place of a chain whose tensors the last cache holds not well enough."""
    middle = next(node for node in chain if _is_depthwise(node.op))
    sizes, kernel = sizes_of(cast("KernelOp", middle.op)), cast("KernelOp", middle.op).kernel
    assert isinstance(kernel, NhwcDepthwiseKernel)
    window = Window(kernel.window[0], kernel.strides[0], kernel.dilations[0], sizes["pad_h"], sizes["ih"])
    inputs, steps = list[Value | None](), list[Step]()
    for i, node in enumerate(chain):
        operands = list[int | None]()
        for k, value in enumerate(node.inputs):
            operands.append(None if i and k == 0 else len(inputs))
            if operands[-1] is not None:
                inputs.append(value)
        ahead = chain.index(middle) > i
        width = sizes["iw"] if ahead else sizes["ow"]
        steps.append(Step(cast("KernelOp", node.op), tuple(operands), width, window if node is middle else None))
    result = chain[-1].outputs[0]
    between = tuple(node.outputs[0].dtype for node in chain[:-1])
    divided = _divided(steps, sizes["oh"], max(t.itemsize for t in between), isa)
    if divided is None:
        return False
    layers = tuple(dict.fromkeys(name for node in chain for name in node.layers or ()))
    made = graph.new_value(result.name, result.type)
    bands = [*calls_of(steps, sizes["oh"], *divided)]
    steps = [_for_bands(step, [band[i] for band in bands]) for i, step in enumerate(steps)]
    op = Bands(tuple(steps), sizes["oh"], *divided, between)
    graph.add_node(op, inputs, [made], chain[-1].name, chain[-1].loc, layers)
    replace_value(graph, result, made)
    graph.prune_back(chain[-1])
    return True


def _for_bands(step: Step, calls: Sequence[Call]) -> Step:
    """Give a product the heights of tiles that as many rows as bands have are cut into."""
    kernel = step.op.kernel
    if not isinstance(kernel, PRODUCTS):
        return step
    counts = {(call.end - call.first) * step.width for call in calls}
    return replace(step, op=replace(step.op, kernel=kernel.for_rows(counts)))


def _divided(steps: Sequence[Step], rows: int, itemsize: int, isa: Isa) -> tuple[int, int] | None:
    """Choose the parts for threads, and the fewest bands of each whose tensors stay in the second cache.

    None where the last cache holds the whole tensors well enough, or no band fits.
    """
    if sum(_between(steps, [*calls_of(steps, rows, 1, 1)])) * itemsize < FAR:
        return None
    again = max((s.window.span - s.window.stride for s in steps[1:] if s.window), default=0)
    read = max(s.window.size for s in steps if s.window)
    parts = 1
    while parts < PARTS and 2 * parts * max(again, 1) * AGAIN <= read:
        parts *= 2
    if parts == 1:
        return None
    room = BAND * max(isa.l2, LEAST) / itemsize
    height = next((n for n in range(-(-rows // (2 * parts)), 0, -1) if _held(steps, n) <= room), rows)
    count = -(-rows // (parts * height))
    if count < 2 or parts * count > rows:
        return None
    bands = calls_of(steps, rows, parts, count)
    seen = all(c.stop > c.begin for band in bands for c, step in zip(band, steps, strict=True) if step.window)
    return (parts, count) if seen else None


def _held(steps: Sequence[Step], height: int) -> int:
    """Count the elements between the kernels of a band of so many rows that meets no edge."""
    held, rows = 0, height
    for before, step in reversed([*pairwise(steps)]):
        if step.window:
            rows = min((rows - 1) * step.window.stride + step.window.span, step.window.size)
        held += rows * before.row
    return held


def _between(steps: Sequence[Step], bands: Sequence[Sequence[Call]]) -> list[int]:
    """Count the elements of what each step but the first reads in a band, at most."""
    return [max(band[i].stop - band[i].begin for band in bands) * step.row for i, step in enumerate(steps[:-1], 1)]


def _is_depthwise(op: Op) -> bool:
    """Tell whether an operation is a depthwise convolution of one image, channels last, of known sizes."""
    if type(op) is not KernelOp or not isinstance(op.kernel, NhwcDepthwiseKernel) or not _is_known(op):
        return False
    return sizes_of(op)["batch"] == 1


def _of_product(op: Op) -> dict[str, int]:
    """Return the sizes of a product with constant weights, if they are known; none of anything else."""
    if type(op) is not KernelOp or not isinstance(op.kernel, PRODUCTS) or not _is_known(op):
        return {}
    sizes = sizes_of(op)
    return sizes if op.kernel.b_constant and sizes["batch0"] == sizes["batch1"] == 1 else {}


def _is_known(op: KernelOp) -> bool:
    """Tell whether all sizes of a call are known; its result is no part of another tensor."""
    known = all(constant_of(e) is not None for e in op.sizes)
    return known and op.results == 1 and op.part_of is None and op.scratch == Dim.of(0)
