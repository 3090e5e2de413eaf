"""Put kernels in the place of nodes: what the selection for all operations shares.

The operation of such a node is a `KernelOp`.  Constant weights become constants in the kernel's packing; other operands
are read where they stand, by strides, through rearrangements in between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar

from irc.expr import Const, Expr, Size, index
from irc.fusion.access import ZERO, Access, row_major
from irc.fusion.elements import Elements
from irc.fusion.epilogues import Collector, FusedEpilogue
from irc.fusion.origins import layers_between
from irc.ir.dim import Dim, DimLike, product
from irc.ir.graph import Constant, Graph, Node, Value
from irc.ir.types import DType, TensorType, f32, f64, u8
from irc.kernels.core.base import Array, Kernel, Packed
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import Problem
from irc.layout.destination import DestinationPart
from irc.loops import builder
from irc.loops.ir import Buffer, KernelCall
from irc.opdef.base import Op
from irc.opdef.signature import Sig
from irc.ops.conv import Conv
from irc.ops.layout import Reshape, Transpose
from irc.ops.matmul import MatMul
from irc.passes.replace import replace_value
from irc.passes.simplify import order_of
from irc.selection.residency import constant_bytes

P = TypeVar("P", bound=Problem)
WORTH = 2048
"""Number of products below which loops are as fast."""
DTYPES = (f32, f64)


@dataclass(frozen=True)
class KernelOp(Op):
    """A kernel and its operands, in the kernel's order; its results are the node's.

    starts: of each operand, then of the results, in elements.  scratch: bytes.
    part_of: the operand, after all that are read, of which the result is a part.
    """

    kernel: Kernel[Any]
    sizes: tuple[Expr, ...]
    starts: tuple[Expr, ...]
    scratch: Dim
    results: int = 1
    part_of: int | None = field(default=None, kw_only=True)  # pyright: ignore[reportIncompatibleVariableOverride]
    sig: ClassVar[Sig] = Sig("*xs: any -> y: any")

    def spelled(self) -> str:
        """Spell the kernel and its sizes as graphs are printed."""
        sizes = ", ".join(f"{n}={_number(e)}" for n, e in zip(self.kernel.sizes, self.sizes, strict=True))
        return f"KernelOp[{self.kernel.symbol}]({sizes})"

    def with_sizes(self, sizes: Mapping[str, DimLike]) -> Op:
        def at(e: Expr) -> Expr:
            return index(e.dim.subs(sizes)) if isinstance(e, Size) else e

        stated = {s.name for e in (*self.sizes, *self.starts) if isinstance(e, Size) for s in e.dim.symbols()}
        if not stated & sizes.keys():
            return self
        stands = tuple(map(at, self.starts))
        return replace(self, sizes=tuple(map(at, self.sizes)), starts=stands, scratch=self.scratch.subs(sizes))

    def loops(self, b: builder.LoopBuilder, *operands: builder.Place) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Call the kernel, which splits its work over the threads itself."""
        buffers = tuple(x.buffer for k, x in enumerate(operands) if k != self.part_of)
        reads, writes = buffers[: -self.results], buffers[-self.results :]
        scratch: tuple[Buffer, ...] = ()
        if any(name == "scratch" for name, _ in self.kernel.pointers):  # of no bytes too, in an empty batch
            scratch = (Buffer(f"packed{len(b.scratch)}", u8, (self.scratch,), "arena", origin=b.origin),)
            b.scratch.extend(scratch)
        b.add(KernelCall(self.kernel, reads, writes, self.sizes, scratch, self.starts))  # type: ignore[arg-type]


def _number(e: Expr) -> str:
    return str(e.value if isinstance(e, Const) else e.dim if isinstance(e, Size) else e)


@dataclass
class Selection:
    """A kernel selected for a node and its epilogue: its operands with their offsets, and the value it computes."""

    kernel: Any
    operands: list[tuple[Value, Dim]]
    sizes: dict[str, Dim]
    scratch: Dim
    result: Value
    fused: FusedEpilogue

    @classmethod
    def of(
        cls,
        kernel: Kernel[P],
        problem: P,
        operands: Sequence[Access],
        fused: FusedEpilogue,
        packed: Value | None = None,
        result: Value | None = None,
    ) -> Self:
        """State the call of a kernel for a problem.

        operands: what it reads, after the first one the constant `packed`, if any, then those of the epilogue.
        result: what it computes, if that is not the value of the epilogue.
        """
        places = [(x.value, x.offset) for x in operands]
        if packed is not None:
            places.insert(1, (packed, ZERO))
        places += [(s.value, s.offset) for s in fused.slots]
        return cls(kernel, places, kernel.arguments_for(problem), kernel.scratch(problem), result or fused.value, fused)


@dataclass(frozen=True)
class Place:
    """A part of a destination: where it starts, the strides there, and the value of the destination with it."""

    destination: Value
    start: int
    strides: dict[str, Dim]
    result: Value


class Selector:
    """State that the families share: the graph, epilogues, packed constants."""

    def __init__(self, graph: Graph, isa: Isa, precision: str = "highest") -> None:
        self.graph, self.isa, self.precision = graph, isa, precision
        self.elements = Elements()
        self.collector = Collector(graph, self.elements)
        self._packed: dict[tuple[object, ...], Value] = {}

    @cached_property
    def weights(self) -> int:
        """The bytes of all constants that a run reads, without tables of which it reads a few rows."""
        return constant_bytes(self.graph)

    def constant(self, packed: Packed, array: Callable[[], Array], key: tuple[object, ...], name: str) -> Value:
        """Add a constant as a kernel packs it, equal ones once.

        key: equal for equal arrays.
        """
        whole = (key, packed.key)
        if whole not in self._packed:
            constant = Constant(packed.dtype, (packed.elements,), lambda: packed.pack(array()))
            self._packed[whole] = self.graph.add_constant(constant, f"{name}/packed")
        return self._packed[whole]

    def only_use(self, value: Value) -> Node | None:
        """Return the only node that reads a value; None if there are several, or it is an output."""
        return self.graph.only_use(value)

    def stands(self, value: Value) -> bool:
        """Tell whether a value is in memory in any case, so that loops would not compute it on the way to its reader.

        It is an input, read several times, stored by an operation or a kernel, or by the kernel that a product or a
        convolution will have; or it is such a value in another shape.
        """
        node = value.producer
        if node is None or node.op.loops is not None or self.only_use(value) is None:
            return True
        source = node.inputs[0] if isinstance(node.op, Reshape) else None
        return self._of_contraction(value) if source is None else self.stands(source)

    def _of_contraction(self, value: Value) -> bool:
        """Tell whether a product or a convolution computes a value, with elementwise operations behind it."""
        node = value.producer
        if node is None or self.only_use(value) is None:
            return False
        if isinstance(node.op, MatMul | Conv):
            return True
        return node.op.elementwise and any(self._of_contraction(v) for v in node.operands if v.shape == value.shape)

    def stored(self, value: Value) -> tuple[Value, tuple[Dim, ...]]:
        """Find the value to store and its strides over the axes of a value.

        It is the value itself, or a Transpose of it that keeps the last axis.
        """
        after = self.only_use(value)
        if after is not None and isinstance(after.op, Transpose) and isinstance(after.outputs[0].type, TensorType):
            order, there = order_of(after), row_major(after.outputs[0].shape)
            if order is not None and order[-1] == len(order) - 1:
                return after.outputs[0], tuple(there[order.index(axis)] for axis in range(len(order)))
        return value, row_major(value.shape)

    def take(
        self, families: Mapping[type[Op], Family], but: Collection[Node] = (), dtypes: Collection[DType] = DTYPES
    ) -> int:
        """Select kernels, in order, for operations of these types, except the nodes in `but`. Returns how many.

        dtypes: of the results.
        """
        done = 0
        for node in self.graph.nodes:
            family = families.get(type(node.op))
            value = node.outputs[0] if node.outputs else None
            if (
                family is None
                or node in but
                or value is None
                or value.dtype not in dtypes
                or node.inputs[0] is None
                or not (value.uses or self.graph.keeps(value))
            ):
                continue
            found = family(self, node)
            if found is not None:
                self.apply(node, found)
                done += 1
        return done

    def apply(self, node: Node, selection: Selection) -> None:
        """Replace a node and its epilogue by the kernel, and remove what only they read."""
        part = self._part(selection)
        op = KernelOp(
            selection.kernel,
            selection.kernel.order(**selection.sizes | (part.strides if part else {})),
            (*tuple(index(offset) for _, offset in selection.operands), index(part.start if part else 0)),
            selection.scratch,
            part_of=len(selection.operands) if part else None,
        )
        old = part.result if part else selection.result
        before = old.producer
        made = self.graph.new_value(selection.result.name, old.type)
        name = node.name or (old.producer.name if old.producer else "")
        operands = [v for v, _ in selection.operands] + ([part.destination] if part else [])
        layers = layers_between(self.elements, operands, old)
        self.graph.add_node(op, operands, [made], name, node.loc, layers)
        replace_value(self.graph, old, made)
        if before is not None:
            self.graph.prune_back(before)
        for reader in made.uses:
            self.elements.forget(reader)

    def _part(self, selection: Selection) -> Place | None:
        """Find the part of a concatenation that the result goes to.

        Its strides must be of whole rows of the last axis.
        """
        value = selection.result
        user = self.only_use(value)
        if user is None or not isinstance(user.op, DestinationPart) or not selection.kernel.result_strides:
            return None
        destination = user.inputs[0]
        assert destination is not None
        own, whole = int(value.shape[-1]), int(destination.shape[-1])
        strides = {
            n: selection.sizes[n].exact_div(own) for n in selection.kernel.result_strides if n in selection.sizes
        }
        found = {n: s * whole for n, s in strides.items() if s is not None}
        return Place(destination, user.op.start, found, user.outputs[0]) if len(found) == len(strides) else None


Family = Callable[[Selector, Node], Selection | None]


def worthwhile(*sizes: Dim) -> bool:
    """Tell whether this many products are worth a kernel; unknown sizes are taken for large."""
    work = product([s for s in sizes if s.is_const])
    return not all(s.is_const for s in sizes) or int(work) >= WORTH
