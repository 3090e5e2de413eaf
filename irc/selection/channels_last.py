"""Operations with the channels last as kernels: Conv and pools over one or two spatial axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from irc.fusion.access import ZERO, Access, Space, find, row_major
from irc.fusion.epilogues import Tail, merged
from irc.ir.dim import Dim
from irc.ir.graph import Constant, Node, Value
from irc.kernels import (
    AmxConvKernel,
    DotWinogradKernel,
    Epilogue,
    select_depthwise_last,
    select_direct_conv,
    select_matrix_conv,
    select_matrix_winograd,
    select_pool_last,
    select_winograd,
)
from irc.kernels.conv.nhwc import DirectConvKernel
from irc.kernels.conv.winograd import WinogradKernel
from irc.kernels.core.catalogue import DIRECT_WIDTHS
from irc.kernels.core.choices import current
from irc.opdef.window import spatial, window_padding
from irc.selection.select import Claim, Claimer, worthwhile

ONE = Dim.of(1)
LastConvKernel = AmxConvKernel | DotWinogradKernel | WinogradKernel | DirectConvKernel
WINOGRAD = 1.7  # times faster than `select_direct_conv`'s kernel


@dataclass
class Planes:
    """Windows over planes; one spatial axis is a plane of one row."""

    batch: Dim
    channels: Dim
    size: tuple[Dim, Dim]
    result: tuple[Dim, Dim]
    window: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    padding: tuple[Dim, Dim]
    flat: bool  # one spatial axis

    def pixel(self, strides: Sequence[Dim]) -> Dim | None:
        """The stride along the pixels of the result; None where it is not one stride."""
        axes = merged(self.result[1:] if self.flat else self.result, strides[1:-1])
        return ZERO if not axes else axes[0][1] if len(axes) == 1 else None

    def sizes(self, source: Access, to: Sequence[Dim]) -> dict[str, Dim]:
        """The sizes that all kernels over planes have."""
        rows = source.strides[1:-1]
        return {
            "batch": self.batch,
            "ih": self.size[0],
            "iw": self.size[1],
            "oh": self.result[0],
            "ow": self.result[1],
            "pad_h": self.padding[0],
            "pad_w": self.padding[1],
            "x_batch": source.strides[0],
            "x_row": ZERO if self.flat else rows[0],
            "x_pixel": rows[-1],
            "y_batch": to[0],
            "y_pixel": self.pixel(to) or ZERO,
        }


def claim(claimer: Claimer, node: Node) -> Claim | None:
    """A kernel for an operation with the channels last, or None where loops do it."""
    wrapped: Any = node.op
    op: Any = wrapped.op
    if op.name == "Conv":
        return _conv(claimer, node, op)
    return _pool(claimer, node, op) if op.name in ("MaxPool", "AveragePool") else None


def planes_of(op: Any, x: Value, y: Value, window: Sequence[int]) -> Planes | None:
    """The geometry, where it is one the kernels know."""
    rank = len(x.shape) - 2
    if rank not in (1, 2):
        return None

    def pair(values: Sequence[Any], one: Any) -> tuple[Any, Any]:
        return (one, values[0]) if rank == 1 else (values[0], values[1])

    space = x.shape[1:-1]
    begin, _ = window_padding(op, space, window)
    return Planes(
        y.shape[0],
        x.shape[-1],
        pair(space, ONE),
        pair(y.shape[1:-1], ONE),
        pair(window, 1),
        pair(spatial(op.name, "strides", op.strides, rank, 1), 1),
        pair(spatial(op.name, "dilations", op.dilations, rank, 1), 1),
        pair(begin, ZERO),
        rank == 1,
    )


def source_of(claimer: Claimer, x: Value) -> Access:
    """Where the input stands: channels side by side, all else at any distance."""
    space = Space(x.shape)
    return next(a for a in find(claimer.elements, space, x, space.at) if a.strides[-1] == 1 or x.shape[-1] == 1)


def _conv(claimer: Claimer, node: Node, op: Any) -> Claim | None:
    x, weights, *rest = node.inputs
    assert x is not None and weights is not None
    out = node.outputs[0]
    planes = planes_of(op, x, out, [int(d) for d in weights.shape[2:]])
    if planes is None or weights.const is None or not worthwhile(*out.shape, *weights.shape[1:]):
        return None
    bias: list[Access] = []
    if rest and rest[0] is not None:
        space = Space(out.shape)
        bias = find(claimer.elements, space, rest[0], (space.at[-1],))[-1:]
    tail = claimer.collector.tail(out, bias, lambda a: a.strides[-1] in (0, 1) and planes.pixel(a.strides) is not None)
    return _chosen(claimer, planes, op.group, x, weights, weights.const, tail)


def _pool(claimer: Claimer, node: Node, op: Any) -> Claim | None:
    """A pool whose indices nobody wants; whether a window may see nothing but padding is for loops to say."""
    x, out = node.inputs[0], node.outputs[0]
    assert x is not None
    planes = planes_of(op, x, out, op.kernel)
    wanted = any(v.uses or v in claimer.graph.outputs for v in node.outputs[1:])
    if planes is None or wanted or not worthwhile(*out.shape, *map(Dim.of, op.kernel)):
        return None
    begin, end = window_padding(op, x.shape[1:-1], op.kernel)
    if any(not d.is_const or int(d) < 0 for d in (*begin, *end)):
        return None
    if any(int(p) >= w for p, w in zip((*begin, *end), (*op.kernel, *op.kernel), strict=True)):
        return None
    tail = claimer.collector.tail(out, [], lambda a: a.strides[-1] in (0, 1) and planes.pixel(a.strides) is not None)
    epilogue = Epilogue(tail.expr, tuple(_kind(planes, s) for s in tail.slots))
    mode: Any = "max" if op.name == "MaxPool" else "average"
    counted: Any = getattr(op, "counted", "inside")
    window = (planes.window, planes.strides, planes.dilations)
    kernel = select_pool_last(claimer.isa, out.dtype, mode, *window, counted, epilogue, planes.result[1])
    if kernel is None:
        return None
    source = source_of(claimer, x)
    sizes = planes.sizes(source, row_major(tail.value.shape)) | slot_strides(planes, tail, epilogue)
    after = (ZERO, *end) if planes.flat else end
    sizes |= {"channels": planes.channels, "end_h": after[0], "end_w": after[1]}
    operands = [(source.value, source.offset), *((s.value, s.offset) for s in tail.slots)]
    return Claim(kernel, operands, sizes, ZERO, tail.value, tail)


def slot_strides(planes: Planes, tail: Tail, epilogue: Epilogue) -> dict[str, Dim]:
    """The sizes that say where the operands of an epilogue stand."""
    sizes: dict[str, Dim] = {}
    for k, (kind, s) in enumerate(zip(epilogue.slots, tail.slots, strict=True)):
        sizes[f"s{k}_batch"] = s.strides[0]
        if kind in ("column", "full"):
            sizes[f"s{k}_pixel"] = planes.pixel(s.strides) or ZERO
    return sizes


def _chosen(
    claimer: Claimer, planes: Planes, groups: int, x: Value, weights: Value, constant: Constant, tail: Tail
) -> Claim | None:
    """The kernel selected, sizes by name, weights packed."""
    oc = int(weights.shape[0])
    epilogue = Epilogue(tail.expr, tuple(_kind(planes, s) for s in tail.slots))
    source = source_of(claimer, x)
    sizes = planes.sizes(source, row_major(tail.value.shape)) | slot_strides(planes, tail, epilogue)
    found = _select(claimer, planes, groups, oc, epilogue)
    if found is None:
        return None
    shape = (oc, int(weights.shape[1]), *planes.window)

    def packed() -> np.ndarray[Any, Any]:
        return found.kernel.pack_weights(constant.array.reshape(shape), *found.given)

    if isinstance(found.kernel, AmxConvKernel | DotWinogradKernel):
        key, stored = (weights, found.kernel.packing, *found.given), found.kernel.w_dtype
    else:
        key = (weights, found.kernel.__class__, found.kernel.tile, getattr(found.kernel, "block", 0), *found.given)
        stored = constant.dtype
    filled = claimer.packed(key, packed, stored, found.elements, weights.name)
    operands = [(source.value, source.offset), (filled, ZERO), *((s.value, s.offset) for s in tail.slots)]
    return Claim(found.kernel, operands, sizes | found.sizes, found.scratch, tail.value, tail)


@dataclass
class Selection:
    """A kernel with the sizes that only its family has; elements: of the packed weights; given: to pack them."""

    kernel: Any
    sizes: dict[str, Dim]
    elements: int
    given: tuple[int, ...] = ()
    scratch: Dim = ZERO


def _select(claimer: Claimer, planes: Planes, groups: int, outputs: int, epilogue: Epilogue) -> Selection | None:
    isa, dtype = claimer.isa, epilogue.dtype
    ic, oc = int(planes.channels) // groups, outputs // groups
    window = (planes.window, planes.strides, planes.dilations)
    if groups == planes.channels == outputs > 1:
        depthwise = select_depthwise_last(isa, dtype, *window, epilogue, planes.result[1])
        if depthwise is not None:
            return Selection(depthwise, {"channels": planes.channels}, depthwise.packed_elements(outputs))
    regular = groups == 1 and window == ((3, 3), (1, 1), (1, 1))
    winograd = select_winograd(isa, dtype, oc, ic, *planes.result, epilogue) if regular else None
    shape, rival = (dtype, oc, ic, *window, *planes.result, epilogue), 1.0 if winograd is None else WINOGRAD
    candidates: dict[str, Callable[[], LastConvKernel | None]] = {
        "terms winograd": lambda: (
            select_matrix_winograd(isa, claimer.precision, dtype, oc, ic, *planes.result, epilogue) if regular else None
        ),
        "terms": lambda: select_matrix_conv(isa, claimer.precision, *shape, rival),
        "winograd": lambda: winograd,
        "rule": lambda: select_direct_conv(isa, *shape),
    }
    for vectors in DIRECT_WIDTHS:
        candidates[f"{vectors} vectors"] = partial(select_direct_conv, isa, *shape, (vectors,))
    known = planes.batch.is_const and all(d.is_const for d in planes.result)
    sides = f"{planes.batch}x{planes.result[0]}x{planes.result[1]}, {groups}x{ic} to {oc} channels"
    work = f"convolution {claimer.precision} {dtype.name} {sides}, window {window[0]} {window[1]} {window[2]}"
    kernels = {name: kernel for name, make in candidates.items() if (kernel := make()) is not None}
    kernel = current().pick(work if known else None, kernels)
    return None if kernel is None else _selection(kernel, planes, groups, ic, oc)


def _selection(kernel: LastConvKernel, planes: Planes, groups: int, ic: int, oc: int) -> Selection:
    """The kernel's own sizes and its memory."""
    sizes = {"groups": Dim.of(groups), "ic": Dim.of(ic), "oc": Dim.of(oc)}
    if isinstance(kernel, AmxConvKernel):
        scratch = Dim.of(kernel.scratch_bytes(ic, *map(int, planes.result)))
        return Selection(kernel, sizes, kernel.packed_elements(oc, ic, groups), (groups,), scratch)
    if isinstance(kernel, WinogradKernel | DotWinogradKernel):
        tiles = planes.result[0].ceildiv(2) * planes.result[1].ceildiv(2)
        most = kernel.most(ic, tiles)
        sizes = {"ic": Dim.of(ic), "oc": Dim.of(oc), "most": Dim.of(most)}
        return Selection(kernel, sizes, kernel.packed_elements(oc, ic), scratch=kernel.scratch_bytes(ic, most))
    return Selection(kernel, sizes, kernel.packed_elements(oc, ic, groups), (groups,), kernel.scratch_bytes())


def _kind(planes: Planes, access: Access) -> Any:
    if planes.pixel(access.strides) == 0:
        return "row" if access.strides[-1] == 1 else "scalar"
    return "full" if access.strides[-1] == 1 else "column"
