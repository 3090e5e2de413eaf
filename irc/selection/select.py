"""Give nodes to kernels: those of a size that is worth it, with the elementwise operations behind them.

The operation of such a node is a `KernelOp`.  Constant weights become constants in the kernel's packing; other operands
are read where they stand, by strides, through rearrangements in between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from irc.expr import Const, Expr, Size, index
from irc.fusion.access import Access
from irc.fusion.elements import Elements
from irc.fusion.epilogues import Collector, FusedEpilogue
from irc.fusion.origins import layers_between
from irc.fusion.rows import row_groups
from irc.ir.dim import Dim, product
from irc.ir.graph import Constant, Graph, Node, Value
from irc.ir.types import f32, f64, u8
from irc.kernels.core.base import Array, Kernel, Packed
from irc.kernels.core.isa import Isa
from irc.layout.destination import DestinationPart
from irc.loops import builder
from irc.loops.ir import Buffer, KernelCall
from irc.opdef.base import Op
from irc.opdef.signature import Sig
from irc.passes.replace import replace_value

WORTH = 2048
"""Products below which loops do as well."""
DTYPES = (f32, f64)


@dataclass(frozen=True)
class KernelOp(Op):
    """A kernel with its operands: those it reads, in its order; its result is the node's.

    starts: of each operand, then of the result, in elements.  scratch: bytes.
    part_of: the operand, after all that are read, of which the result is a part.
    """

    kernel: Kernel[Any]
    sizes: tuple[Expr, ...]
    starts: tuple[Expr, ...]
    scratch: Dim
    part_of: int | None = field(default=None, kw_only=True)  # pyright: ignore[reportIncompatibleVariableOverride]
    sig: ClassVar[Sig] = Sig("*xs: any -> y: any")

    def spelled(self) -> str:
        """The kernel and its sizes, as graphs are printed."""
        sizes = ", ".join(f"{n}={_number(e)}" for n, e in zip(self.kernel.sizes, self.sizes, strict=True))
        return f"KernelOp[{self.kernel.symbol}]({sizes})"

    def loops(self, b: builder.LoopBuilder, *operands: builder.Place) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """A call of the kernel, which splits its work over the threads itself."""
        *reads, result = (x.buffer for k, x in enumerate(operands) if k != self.part_of)
        scratch: tuple[Buffer, ...] = ()
        if self.scratch != 0:
            scratch = (Buffer(f"packed{len(b.scratch)}", u8, (self.scratch,), "arena", origin=b.origin),)
            b.scratch.extend(scratch)
        b.add(KernelCall(self.kernel, tuple(reads), (result,), self.sizes, scratch, self.starts))  # type: ignore[arg-type]


def _number(e: Expr) -> str:
    return str(e.value if isinstance(e, Const) else e.dim if isinstance(e, Size) else e)


@dataclass
class Selection:
    """A kernel selected for a node and its epilogue: its operands with their places, and where the result goes."""

    kernel: Any
    operands: list[tuple[Value, Dim]]
    sizes: dict[str, Dim]
    scratch: Dim
    result: Value
    fused: FusedEpilogue
    more: tuple[Node, ...] = ()  # further nodes that it takes the place of


@dataclass(frozen=True)
class Place:
    """A part of a destination: where it starts, the strides there, and the value that is the destination with it."""

    destination: Value
    start: int
    strides: dict[str, Dim]
    result: Value


class Selector:
    """What the families share: the graph, epilogues, and putting a kernel into the graph."""

    def __init__(self, graph: Graph, isa: Isa, precision: str = "highest") -> None:
        self.graph, self.isa, self.precision = graph, isa, precision
        self.elements = Elements()
        self.collector = Collector(graph, self.elements)
        self._packed: dict[tuple[object, ...], Value] = {}

    def constant(self, packed: Packed, array: Callable[[], Array], key: tuple[object, ...], name: str) -> Value:
        """Add a constant as a kernel packs it; equal ones once.  key: equal for equal arrays."""
        whole = (key, packed.key)
        if whole not in self._packed:
            constant = Constant(packed.dtype, (packed.elements,), lambda: packed.pack(array()))
            self._packed[whole] = self.graph.add_constant(constant, f"{name}/packed")
        return self._packed[whole]

    def take(self, families: Mapping[str, Family], but: Collection[Node] = ()) -> int:
        """Select kernels, in order, for operations of these names, `but` these nodes; how many."""
        done = 0
        for node in self.graph.nodes:
            family = families.get(node.op.name)
            value = node.outputs[0] if node.outputs else None
            if (
                family is None
                or node in but
                or value is None
                or value.dtype not in DTYPES
                or node.inputs[0] is None
                or not (value.uses or value in self.graph.outputs)
            ):
                continue
            found = family(self, node)
            if found is not None:
                self.apply(node, found)
                done += 1
                self.graph.prune()
        return done

    def apply(self, node: Node, selection: Selection) -> None:
        """Put the kernel in the place of a node and its epilogue."""
        part = self._part(selection)
        op = KernelOp(
            selection.kernel,
            selection.kernel.order(**selection.sizes | (part.strides if part else {})),
            (*tuple(index(offset) for _, offset in selection.operands), index(part.start if part else 0)),
            selection.scratch,
            part_of=len(selection.operands) if part else None,
        )
        old = part.result if part else selection.result
        made = self.graph.new_value(selection.result.name, old.type)
        name = node.name or (old.producer.name if old.producer else "")
        operands = [v for v, _ in selection.operands] + ([part.destination] if part else [])
        layers = layers_between(self.elements, operands, old)
        self.graph.add_node(op, operands, [made], name, node.loc, layers)
        replace_value(self.graph, old, made)

    def _part(self, selection: Selection) -> Place | None:
        """Where in a concatenation the result goes, if all its strides are of whole rows of its last axis."""
        value = selection.result
        user = next(iter(value.uses)) if len(value.uses) == 1 and value not in self.graph.outputs else None
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


def run(graph: Graph, isa: Isa, early: bool = False, precision: str = "highest") -> int:
    """Select kernels for what is worth it; how many nodes became kernels.

    early: before composite operations are decomposed, those of which a kernel takes the whole.
    precision: the least that f32 products must have.
    """
    from irc.selection import attention, channels_last, conv, global_pool, matmul, pool, recurrent, transpose

    selector = Selector(graph, isa, precision)
    done = 0
    families: dict[str, Family] = {
        "MatMul": matmul.select_kernel,
        "Conv": conv.select_kernel,
        "MaxPool": pool.select_kernel,
        "AveragePool": pool.select_kernel,
        "ChannelsLast": channels_last.select_kernel,
    }
    if early:
        families = {"Softmax": attention.select_kernel}
    for node in [n for n in graph.nodes if n.op.name in ("LSTMSteps", "GRUSteps")]:
        done += recurrent.select_kernel(selector, node)
    graph.prune()
    done += selector.take(families)
    if not early:
        reductions: dict[str, Family] = {
            "ReduceMean": global_pool.select_kernel,
            "ReduceMax": global_pool.select_kernel,
        }
        if any(node.op.name in reductions for node in graph.nodes):
            # after contractions have got their epilogues, so that rows are what fusion will see
            done += selector.take(reductions, but=row_groups(graph))
        done += selector.take({"Transpose": transpose.select_kernel})  # last: the others read through it
    return done


Family = Callable[[Selector, Node], Selection | None]


def worthwhile(*sizes: Dim) -> bool:
    """Whether that many products are worth a kernel; unknown sizes are taken for large."""
    work = product([s for s in sizes if s.is_const])
    return not all(s.is_const for s in sizes) or int(work) >= WORTH


__all__ = ["Access", "KernelOp", "Selection", "Selector", "run", "worthwhile"]
