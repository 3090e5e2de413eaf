"""Lowering: a grouped graph to a `Program`, one function per group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from irc.diagnostics import CompileError, Problem, Sink
from irc.diagnostics.codes import lowering as codes
from irc.expr import Expr, Load, Tensor
from irc.fusion.elements import Flat, Inliner
from irc.fusion.group import Group, Grouping
from irc.ir.capacity import Capacity
from irc.ir.dim import Dim, Symbol, product
from irc.ir.graph import Graph, Node, Value, layers_of, symbols_of
from irc.ir.names import unused
from irc.ir.relation import SizeConstraint
from irc.ir.string_marks import KEPT, STRING
from irc.ir.types import DType, TensorType
from irc.layout.destination import Destination
from irc.loops.builder import COPIES, LoopBuilder, Place, place
from irc.loops.checked_once import check_once
from irc.loops.expand import expand
from irc.loops.guarded_reads import read_in_any_case
from irc.loops.hoist import hoist
from irc.loops.ir import (
    Assign,
    Buffer,
    For,
    Function,
    If,
    KernelCall,
    Let,
    Program,
    RunSize,
    Step,
    Stmt,
    Store,
    all_steps,
    touched_by,
    walk as walk_statements,
)
from irc.loops.regions import lower_regions, without_unused
from irc.loops.rows import emit_rows
from irc.loops.stages import emit_copy, emit_element
from irc.passes.size_constraints import recorded
from irc.traversal import transform, walk

NEW_LAYOUT = "the same elements in another order, as kernels like them"
"""Comment of a function that belongs to no layer."""


def lower(graph: Graph, grouping: Grouping, name: str, sink: Sink | None = None, copies: int = COPIES) -> Program:
    """Lower a grouped graph to a program. Raises CompileError with every finding.

    copies: see `LoopBuilder`.
    """
    lowering = Lowering(graph, grouping, name, sink or Sink())
    lowering.copies = copies
    return lowering.run()


@dataclass
class Scope:
    """State for the emission of one group."""

    lowering: Lowering
    b: LoopBuilder
    inliner: Inliner
    local: dict[Value, Any] = field(default_factory=dict[Value, Any])
    """Stages of this group that are not read from their buffers: value → function from an index to an Expr."""

    def element(self, value: Value, index: tuple[Expr, ...]) -> Expr:
        """Express the element to compute, with loads of buffers."""
        return self.resolve(self.inliner.at(value, index))

    def resolve(self, e: Expr) -> Expr:
        """Replace loads of values by loads of buffers (or of what holds a local stage)."""

        def visit(x: Expr) -> Expr:
            if not isinstance(x, Load):
                return x
            if isinstance(x.buffer, Flat):
                return Load(self.lowering.flat(self.lowering.buffer(x.buffer.value)), x.index)
            if not isinstance(x.buffer, Value):
                return x
            if x.buffer in self.local:
                return self.local[x.buffer](x.index)
            return Load(self.lowering.buffer(x.buffer), x.index)

        return transform(e, visit)


class Lowering:
    """The lowering of one graph: a model's, or with `outer` that of a region in it, which adds to the same program."""

    def __init__(self, graph: Graph, grouping: Grouping, name: str, sink: Sink, outer: Lowering | None = None) -> None:
        self.graph, self.grouping, self.sink = graph, grouping, sink
        self.copies: int = COPIES if outer is None else outer.copies
        self.program = Program(name, [], [], [], [], []) if outer is None else outer.program
        self.known: set[str] = {*graph.sizes, *(outer.known if outer is not None else ())}
        """The names of all sizes that inputs or the run define."""
        self.buffers: dict[Value, Buffer] = {}
        self._flat: dict[Buffer, Buffer] = {}
        self._place = {n: k for k, n in enumerate(graph.nodes)}
        self._stands_as: dict[Value, list[Node]] = {}
        """Of what is computed where an output is wanted: the nodes that make the output a view of it."""
        self._read_through: set[Node] = set()
        """The nodes that make views which the function being written reads or writes."""
        self._names: set[str] = set() if outer is None else outer._names

    def run(self) -> Program:
        self._inputs()
        self.check_values()
        self.sink.stop_on_errors(CompileError)
        copies = self._outputs()
        self.program.steps += self.steps()
        for value, out in copies:
            self.program.steps.append(self.copy(value, out))
        self.find_sizes()
        without_unused(self.program)
        self._bound_sizes()
        self._constants()
        self.program.constraints = self.constraints()
        self.sink.stop_on_errors(CompileError)
        return self.program

    def inside(self, region: Graph, grouping: Grouping) -> Lowering:
        """Start lowering a region of a node of this graph."""
        return Lowering(region, grouping, region.name, self.sink, self)

    def steps(self) -> list[Step]:
        """Lower the groups in their order."""
        found: list[Step] = []
        for group in self.grouping.groups:
            if group.node is not None and isinstance(group.node.op, Destination):
                continue
            with self.sink.catching(group.node.loc if group.node else _loc(group)):
                if group.node is not None and group.node.op.regions:
                    found += lower_regions(self, group.node)
                else:
                    found.append(self._function(group))
        return found

    # -------------------------------------------------------------------- buffers
    def _inputs(self) -> None:
        for value in self.graph.inputs:
            if isinstance(value.type, TensorType) and value.type.shape is not None:
                self.buffers[value] = self._new(value, "input")
                self.program.inputs.append(self.buffers[value])
                for d in value.shape:
                    only = next(iter(d.symbols()), None)
                    if only is not None and d == Dim({(only,): 1}) and only.name not in self.program.symbols:
                        self.program.symbols.append(only.name)
                        self.known.add(only.name)

    def _outputs(self) -> list[tuple[Value, Buffer]]:
        """Add the output buffers. Returns the outputs that nothing computes in place, to be copied at the end."""
        copies: list[tuple[Value, Buffer]] = []
        for value in self.graph.outputs:
            out = self._new(value, "output")
            self.program.outputs.append(out)
            if value in self.buffers or value.producer is None or not self._stands_in(value, out):
                copies.append((value, out))
        return copies

    def _stands_in(self, value: Value, out: Buffer) -> bool:
        """Let an output be computed where it is wanted; False if it stands elsewhere, from where it is to be copied.

        What it is a view of is computed there too, if it is as large, and nothing else has said where it stands.
        """
        whole = value
        while whole in self.grouping.views:
            whole = self.grouping.views[whole]
        if whole is not value:
            given = whole in self.buffers or whole.producer is None or whole.const is not None
            alike = whole.dtype == value.dtype and product(whole.shape) == product(value.shape)
            if given or whole in self.graph.outputs or not alike or value.extras or whole.extras:
                return False
            name = self.name(whole.name)
            self.buffers[whole] = Buffer(name, whole.dtype, whole.shape, out.where, base=out, origin=out.origin)
            self._stands_as[whole] = self._views(value)
        self.buffers[value] = out
        return True

    def find_sizes(self) -> None:
        """Add the sizes that this graph defines and that something uses to those of the program."""
        used = self.run_symbols() if self.graph.sizes else {}
        known = {(s.symbol.name, s.buffer.root) for s in self.program.sizes}
        for name, value in self.graph.sizes.items():
            if name in used and (name, self.buffer(value).root) not in known:
                self.program.sizes.append(RunSize(used[name], self.buffer(value), value.name))

    def _bound_sizes(self) -> None:
        """Put the sizes into the order in which the program computes them, and find those that nothing bounds."""
        program = self.program
        written: dict[Buffer, int] = {}
        for k, step in enumerate(all_steps(program.steps)):
            for b in step.writes if isinstance(step, Function) else touched_by(step):
                written.setdefault(b.root, k)
        program.sizes.sort(key=lambda s: written.get(s.buffer.root, -1))
        program.capacity = Capacity(program.symbols)
        for b in (*program.buffers(), *program.outputs):
            program.capacity.of(b.elements)
        for s in program.sizes:  # also one that no buffer has
            program.capacity.of(Dim({(s.symbol,): 1}))
        unbounded = {s.symbol.name: s for s in program.sizes if s.symbol.name in program.capacity.free}
        program.limits = list(unbounded.values())

    def run_symbols(self) -> dict[str, Symbol]:
        """Find the symbols that the run defines."""
        values = (v for graph in self.graph.nested() for v in graph.values())
        found = {s for v in values for d in symbols_of([v]).values() for s in d.symbols()}
        return {s.name: s for s in found if s.name in self.graph.sizes}

    def _new(self, value: Value, where: Any) -> Buffer:
        origin = layers_of([value.producer]) if value.producer else ()
        strings, kept = STRING in value.extras, KEPT in value.extras
        return Buffer(self.name(value.name), value.dtype, value.shape, where, origin=origin, strings=strings, kept=kept)

    def name(self, hint: str) -> str:
        return unused(hint, self._names)

    def buffer(self, value: Value) -> Buffer:
        """Return the buffer of a stored value, view, input or constant."""
        self._read_through.update(self._views(value))
        found = self.buffers.get(value)
        if found is None:
            if value in self.grouping.views:
                base = self.buffer(self.grouping.views[value])
                found = Buffer(
                    self.name(value.name), value.dtype, value.shape, base.where, base=base, origin=base.origin
                )
            elif value.const is not None:
                found = self._new(value, "constant")
                found.data = value.const.array
            else:
                found = self._new(value, "arena")
            self.buffers[value] = found
        return found

    def flat(self, buffer: Buffer) -> Buffer:
        """Make a one-dimensional view of a buffer."""
        if len(buffer.shape) == 1:
            return buffer
        if buffer not in self._flat:
            self._flat[buffer] = Buffer(
                self.name(f"{buffer.name}_flat"),
                buffer.dtype,
                (buffer.elements,),
                buffer.where,
                base=buffer,
                origin=buffer.origin,
            )
        return self._flat[buffer]

    def scratch(self, dtype: DType, shape: tuple[Dim, ...], hint: str) -> Buffer:
        """Reserve arena memory for one function."""
        return Buffer(self.name(hint), dtype, shape, "arena")

    # ------------------------------------------------------------------ functions
    def _function(self, group: Group) -> Function:
        b = LoopBuilder(self.layers(v.producer for v in group.stages), self.copies)
        self._read_through.clear()
        stages = set(group.stages)
        inliner = Inliner(self.grouping.elements, lambda v: v in stages or self.grouping.is_leaf(v))
        scope = Scope(self, b, inliner)
        if group.node is not None:
            self._loops(group.node, b)
        elif group.frame is not None:
            emit_rows(scope, group)
        else:
            emit_element(scope, group.results[0])
        nodes = {v.producer for v in group.stages} | set(inliner.used) | self._read_through
        made = self._finished(group.name, b, self.layers(nodes), early=group.node is None)
        if not layers_of(n for n in nodes if n is not None):
            made.comment = NEW_LAYOUT
        return made

    def _views(self, value: Value) -> list[Node]:
        """List the nodes that make a value a view of another value, and so on, and an output one of that.

        Parts of a destination do not count.
        """
        found: list[Node] = []
        while value in self.grouping.views:
            if value.producer is not None and value.producer.op.part_of is None:
                found.append(value.producer)
            value = self.grouping.views[value]
        return found + self._stands_as.get(value, [])

    def layers(self, nodes: Iterable[Node | None]) -> tuple[str, ...]:
        """List the layers that nodes compute, in the graph's order.

        Nodes of no layer, such as changes of layout, get the nearest layers that made their operands, or that use their
        results.
        """
        here = sorted({n for n in nodes if n is not None}, key=lambda n: self._place[n])
        for neighbours in (self.graph.dag.predecessors, self.graph.dag.successors):
            near, seen = here, set(here)
            while near:
                found = layers_of(near)
                if found:
                    return found
                near = [m for m in dict.fromkeys(m for n in near for m in neighbours(n)) if m not in seen]
                seen.update(near)
        return ()

    def _loops(self, node: Node, b: LoopBuilder) -> None:
        """Emit an operation that writes its loops itself."""
        assert node.op.loops is not None

        def operand(value: Value | None) -> Tensor | None:
            if value is None:
                return None
            if not isinstance(value.type, TensorType):
                return None
            array = value.array if value.tensor.is_static and int(value.tensor.elements()) <= 65536 else None
            buffer = self.buffer(value)
            return Place(value.tensor, lambda at: Load(buffer, at), array, buffer)

        ins = [operand(v) for v in node.inputs]
        if node.op.sig.max_inputs is not None:
            ins += [None] * (node.op.sig.max_inputs - len(ins))
        node.op.loops(b, *ins, *(place(self.buffer(v)) for v in node.outputs))
        expand(b)

    def copy(self, value: Value, out: Buffer) -> Function:
        """Make a function that copies a value that stands elsewhere to a buffer; it computes the views in between."""
        return self.copied(self.buffer(value), out, *(self._views(value) or [value.producer]), name=value.name)

    def copied(self, source: Buffer, out: Buffer, *nodes: Node | None, name: str = "condition") -> Function:
        """Make a function that copies a buffer to another of as many elements, for these nodes."""
        layers = self.layers(nodes)
        b = LoopBuilder(layers, self.copies)
        if source.shape != out.shape:  # only the source's sizes say for sure how many elements there are
            source, out = self.flat(source), _part(out, source.elements)
        emit_copy(self, b, source, out)
        return self._finished(f"copy {name}", b, layers)

    def _finished(self, name: str, b: LoopBuilder, origin: tuple[str, ...], early: bool = True) -> Function:
        read_in_any_case(b)
        hoist(b, early)
        check_once(b)
        reads, writes = touched(b.body)
        inner = set(b.scratch)
        return Function(
            self.name(name),
            b.body,
            tuple(x for x in reads if x.root not in inner),
            tuple(x for x in writes if x.root not in inner),
            origin,
            scratch=tuple(b.scratch),
        )

    def _constants(self) -> None:
        used = dict.fromkeys(x.root for step in all_steps(self.program.steps) for x in touched_by(step))
        self.program.constants = [x for x in used if x.where == "constant"]

    # --------------------------------------------------------------------- checks
    def check_values(self) -> None:
        """Check that every stored value is a tensor of numbers, and that all sizes follow from those of the inputs."""
        for value in self._all_values():
            loc = value.producer.loc if value.producer else value.loc
            kind = value.type
            if not isinstance(kind, TensorType) or kind.shape is None or kind.dtype.kind not in "fiub":
                self.sink.report(codes.UNSUPPORTED_TYPE, loc, value=value.name, type=kind)
        for value in dict.fromkeys([*self._all_values(), *(v for n in self.graph.nodes for v in n.outputs)]):
            for name in sorted(symbols_of([value]).keys() - self.known):
                self._unknown_symbol(value, name)

    def constraints(self) -> list[SizeConstraint]:
        """List the constraints on sizes.  A constraint on a size that nothing defines is a finding."""
        found: list[SizeConstraint] = []
        for constraint in recorded(self.graph):
            unknown = [s.name for s in constraint.symbols() if s.name not in self.known]
            for name in unknown:
                self._unknown_symbol(None, name)
            found += [] if unknown else [constraint]
        return found

    def _all_values(self) -> list[Value]:
        values = [*self.graph.inputs, *self.graph.outputs]
        for group in self.grouping.groups:
            values += [*group.stages, *(group.node.operands if group.node else ())]
        return list(dict.fromkeys(values))

    def _unknown_symbol(self, value: Value | None, name: str) -> None:
        """Report the first operation in whose result the symbol appears, or the input that declares it.

        Without a value, there is no finding if neither is left.
        """
        for node in self.graph.nodes:
            out = next((v for v in node.outputs if name in symbols_of([v])), None)
            if out is not None and not any(name in symbols_of([v]) for v in node.operands):
                self.sink.report(codes.DATA_DEPENDENT, node.loc, symbol=name, value=out.name, op=node.op.name)
                return
        value = value or next((v for v in self.graph.inputs if name in symbols_of([v])), None)
        if value is not None:
            self.sink.report(codes.SYMBOL_NOT_AN_INPUT, value.loc, symbol=name, value=value.name)


def _part(buffer: Buffer, elements: Dim) -> Buffer:
    """Make a view of the first elements of a buffer."""
    return Buffer(buffer.name, buffer.dtype, (elements,), buffer.where, base=buffer, origin=buffer.origin)


def _loc(group: Group) -> Any:
    from irc.diagnostics import NOWHERE

    producer = group.results[0].producer
    return producer.loc if producer else NOWHERE


def touched(stmts: list[Stmt]) -> tuple[tuple[Buffer, ...], tuple[Buffer, ...]]:
    """Collect the buffers, except local ones, that statements read and write."""
    reads: dict[Buffer, None] = {}
    writes: dict[Buffer, None] = {}

    def note(e: Expr) -> None:
        for x in walk(e):
            if isinstance(x, Load) and x.buffer.root.where != "local":
                reads[x.buffer] = None

    for s in walk_statements(stmts):
        match s:
            case Store():
                if s.buffer.root.where != "local":
                    writes[s.buffer] = None
                for e in (*s.index, s.value):
                    note(e)
            case Let() | Assign():
                note(s.value)
            case For():
                note(s.extent)
            case If():
                note(s.cond)
            case KernelCall():
                reads.update((b, None) for b in s.reads if b.root.where != "local")
                writes.update((b, None) for b in s.writes if b.root.where != "local")
            case _:
                pass
    return tuple(reads), tuple(writes)


__all__ = ["Lowering", "Problem", "Scope", "lower", "touched"]
