"""Strings as C has them: a pass that puts addresses in their place (docs/adr/0023-strings.md).

A string becomes an i64, the address of its text.  What moves strings moves these; what reads or makes texts becomes
a `TextOp`, a function of `irc.kernels.text`.  Strings of the caller are pairs of a pointer and a number of bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from irc.diagnostics import CompileError, Problem, Sink
from irc.diagnostics.codes import lowering as codes
from irc.expr import index
from irc.ir.dim import Dim, product
from irc.ir.graph import Graph, Node, Value
from irc.ir.string_marks import KEPT, STRING
from irc.ir.types import F8, DType, TensorType, boolean, f32, f64, i64, string, u8, u64
from irc.kernels.text import functions
from irc.kernels.text.base import TextKernel
from irc.loops import builder
from irc.loops.ir import KernelCall
from irc.opdef.base import Op
from irc.opdef.builder import Builder, known_by
from irc.opdef.signature import Sig
from irc.ops.texts import change_case
from irc.passes.inline import decompose_where
from irc.passes.replace import put_in_place

PAIR = 2
"""Numbers that stand for a string of the caller's: where its bytes are, and how many."""
LETTERS = 0x530
TABLED = (functions.FIND, functions.CHANGE_CASE, functions.RUN_AUTOMATON, functions.TOKEN_COUNT, functions.TOKENS)
WITH_TABLES = frozenset(kernel.name for kernel in TABLED)
"""Functions whose last size is that of their second operand."""
SPLITTING = frozenset({functions.SPLIT.name, functions.TOKENS.name})
"""Functions that give each string a row of others; a last operand has how many there are of each."""
READS_NUMBERS = frozenset({"NonZero"})
"""Operations that take every type and look at elements, but not at strings."""


@dataclass(frozen=True)
class TextOp(Op):
    """A function over strings; the last of the results of one that makes texts is their memory.

    dtype: of the first result.  shape: of a result that does not have that of the first operand.  most: a number
    that the function knows, as of splits.
    """

    kernel: TextKernel
    dtype: DType = i64
    shape: tuple[int, ...] | None = None
    most: int = -1
    sig: ClassVar[Sig] = Sig("*xs: any -> *ys: any")
    at_run_only: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"TextOp[{self.kernel.symbol}]"

    def infer(self, *operands: Value) -> Sequence[TensorType]:
        if self.kernel.measures:
            return [TensorType.of(i64, [1])]
        shape = operands[0].shape if self.shape is None else tuple(map(Dim.of, self.shape))
        if self.kernel == functions.READ:
            shape = shape[:-1]
        elif self.kernel == functions.WRITE:
            shape = (*shape, Dim.of(PAIR))
        elif self.kernel.name in SPLITTING:
            shape = (*shape, Dim.fresh("split"))
        found = [TensorType(self.dtype, shape)]
        if self.kernel == functions.RANK:
            found.append(found[0])
        return [*found, TensorType.of(u8, [Dim.fresh("texts")])] if self.kernel.makes_texts else found

    def loops(self, b: builder.LoopBuilder, *operands: builder.Place) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Call the function."""
        read = len(self.kernel.arguments_read)
        reads, writes = operands[:read], operands[-self.results :]
        shape = reads[0].shape
        if self.kernel.name == functions.READ.name:
            shape = shape[:-1]
        numbers = {"n": product(shape), "most": Dim.of(self.most)}
        if self.kernel.name in WITH_TABLES:
            numbers[self.kernel.sizes[-1]] = reads[1].shape[0]
        if self.kernel.name == functions.PACK.name:
            numbers["total"] = reads[2].shape[0]
        if self.kernel.name == functions.SYMBOLS.name:
            numbers["total"] = writes[0].shape[0]
        if self.kernel.name in SPLITTING:
            numbers["parts"] = writes[0].shape[-1]
        sizes = tuple(index(numbers[name]) for name in self.kernel.sizes)
        buffers = ([x.buffer for x in part] for part in (reads, writes))
        b.add(KernelCall(self.kernel, *map(tuple, buffers), sizes))  # type: ignore[arg-type]

    @property
    def results(self) -> int:
        """The number of results."""
        return 1 if self.kernel.measures else len(self.kernel.arguments_written) + self.kernel.makes_texts

    def run_sizes(self, b: Builder, out: Any, *operands: Value) -> Iterable[tuple[Dim, Value]]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Measure the texts."""
        if self.kernel.makes_texts:
            measured = replace(self, kernel=replace(self.kernel, measures=True))
            yield out[-1].shape[0], b.add(measured, *operands)


@dataclass(frozen=True)
class SplitOp(TextOp):
    """The parts of strings; the last operand has their numbers, the largest of which is the size of the last axis."""

    def run_sizes(self, b: Builder, out: Any, *operands: Value) -> Iterable[tuple[Dim, Value]]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Take the largest number of parts, and measure these."""
        counts = b.Concat(b.Reshape(operands[-1], [-1]), b.const([0]), axis=0)
        yield out[0].shape[-1], b.ReduceMax(counts, [0], keepdims=False)
        yield from super().run_sizes(b, out, *operands)


@dataclass(frozen=True)
class SymbolsOp(TextOp):
    """The bytes of strings; the second operand is their number."""

    def infer(self, *operands: Value) -> Sequence[TensorType]:
        known = operands[1].dims()
        return [TensorType(u8, (known[0] if known else Dim.fresh("symbols"),))]

    def run_sizes(self, b: Builder, out: Any, *operands: Value) -> Iterable[tuple[Dim, Value]]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Take the number of bytes."""
        yield out.shape[0], operands[1]


def is_text(value: Value | None) -> bool:
    """Tell whether a value is a tensor of strings."""
    return value is not None and isinstance(value.type, TensorType) and value.dtype == string


def touches(node: Node) -> bool:
    return any(map(is_text, (*node.inputs, *node.outputs)))


def run(graph: Graph, sink: Sink) -> None:
    """Put addresses in the place of strings, in place."""
    if not any(map(is_text, graph.values())):
        return
    for region in list(graph.nested())[1:]:
        for value in filter(is_text, region.values()):
            sink.report(codes.UNSUPPORTED_TYPE, value.loc, value=value.name, type=value.type)
    sink.stop_on_errors(CompileError)
    decompose_where(graph, lambda n: n.op.decompose is not None and touches(n), sink)
    sink.stop_on_errors(CompileError)
    Texts(graph, sink).run()
    graph.prune()


class Texts:
    """The pass over one graph."""

    def __init__(self, graph: Graph, sink: Sink) -> None:
        self.graph, self.sink = graph, sink
        self.handles: dict[Value, Value] = {}
        self.b = Builder(graph)

    def run(self) -> None:
        inputs, outputs = list(self.graph.inputs), list(self.graph.outputs)
        for value in inputs:
            if is_text(value):
                self.read(value)
        for node in list(self.graph.nodes):
            if touches(node):
                with self.sink.catching(node.loc):
                    self.b = Builder(self.graph, node.name or node.op.name, node.loc, layers=node.layers)
                    self.rewrite(node)
        self.b = Builder(self.graph, "strings")
        for value in outputs:
            if is_text(value):
                self.write(value)

    # ------------------------------------------------------------------------------- values
    def handle(self, value: Value) -> Value:
        """Return the addresses that stand for a tensor of strings."""
        if value not in self.handles:
            assert value.const is not None, f"{value.name} has no addresses yet"
            self.handles[value] = self.constant(value)
        return self.handles[value]

    def constant(self, value: Value) -> Value:
        """Lay out the texts of a constant, and compute where they are."""
        assert value.const is not None
        pool, offsets = bytearray(), list[int]()
        known: dict[str, int] = {}
        for text in value.const.array.reshape(-1):
            if text not in known:
                known[text] = len(pool)
                data = text.encode("utf-8", "surrogateescape")
                pool += len(data).to_bytes(8, "little") + data + bytes(-len(data) % 8)
            offsets.append(known[text])
        constants = (
            np.array(offsets, np.int64).reshape(value.const.shape),
            np.frombuffer(bytes(pool) or bytes(8), np.uint8),
        )
        operands = [self.graph.add_constant(c, f"{value.name}/texts") for c in constants]
        return self.call(functions.ADDRESSES, *operands)

    def read(self, value: Value) -> None:
        """Make an input of strings one of pairs."""
        graph, place = self.graph, self.graph.inputs.index(value)
        pairs = graph.add_input(value.name, TensorType.of(i64, [*value.shape, PAIR]))
        pairs.name, pairs.names, pairs.loc = value.name, value.names, value.loc
        pairs.extras = {**value.extras, STRING: True}
        graph.inputs.remove(pairs)
        graph.inputs[place] = pairs
        self.handles[value] = self.call(functions.READ, pairs)

    def write(self, value: Value) -> None:
        """Make an output of strings one of pairs."""
        pairs = self.call(functions.WRITE, self.handle(value))
        place = self.graph.outputs.index(value)
        pairs.name, pairs.names, pairs.loc = value.name, value.names, value.loc
        pairs.extras = {**value.extras, STRING: True}
        self.graph.outputs[place] = pairs

    def call(self, kernel: TextKernel, *operands: Value, **attributes: Any) -> Value:
        """Add a call.  Returns its first result."""
        cls = SplitOp if kernel.name in SPLITTING else TextOp
        cls = SymbolsOp if kernel.name == functions.SYMBOLS.name else cls
        made = self.b.add_all(cls(kernel, **attributes), *operands)
        if kernel.makes_texts:
            made[-1].extras[KEPT] = True
        return made[0]

    # -------------------------------------------------------------------------------- nodes
    def rewrite(self, node: Node) -> None:
        """Replace a node that touches strings."""
        operands = [self.handle(v) if v is not None and is_text(v) else v for v in node.inputs]
        convert: Callable[..., Value | Sequence[Value]] | None = getattr(self, f"of_{node.op.name}", None)
        if node.op.name in READS_NUMBERS or any(True for _ in node.op.regions):
            raise Problem(
                codes.UNSUPPORTED_TYPE, value=node.outputs[0].name, type=node.inputs[0] and node.inputs[0].type
            )
        if convert is None:
            made = self.moved(node, operands)
        else:
            found = convert(node, *operands)
            made = [found] if isinstance(found, Value) else list(found)
            known = known_by([v.type for v in node.outputs], [v.type for v in made])
            for value in made:
                value.type = value.tensor.with_shape([d.subs(known) for d in value.shape])
        for old, new in zip(node.outputs, made, strict=False):
            if is_text(old):
                self.handles[old] = new
            else:
                put_in_place(self.graph, old, new)

    def moved(self, node: Node, operands: Sequence[Value | None]) -> list[Value]:
        """Let an operation that looks at no element move addresses."""
        results = [
            self.graph.new_value(v.name, v.tensor.with_dtype(i64) if is_text(v) else v.type) for v in node.outputs
        ]
        for old, new in zip(node.outputs, results, strict=True):
            new.contents, new.assumed = old.contents, old.assumed
        self.graph.add_node(node.op, list(operands), results, node.name, node.loc, node.layers)
        return results

    def spread(self, node: Node, x: Value) -> Value:
        """Repeat an operand over the shape of the result."""
        shape = node.outputs[0].shape
        return x if x.shape == shape else self.b.Expand(x, self.b.dims(shape))

    def of_StringConcat(self, node: Node, x: Value, y: Value) -> Value:
        return self.call(functions.CONCAT, self.spread(node, x), self.spread(node, y))

    def of_StringBytes(self, node: Node, x: Value) -> Value:
        return self.call(functions.SIZES, x)

    def of_StringSymbols(self, node: Node, x: Value, total: Value) -> Value:
        return self.call(functions.SYMBOLS, x, total)

    def of_StringsOfSymbols(self, node: Node, begins: Value, ends: Value, symbols: Value) -> Value:
        return self.call(functions.PACK, begins, ends, symbols)

    def of_Equal(self, node: Node, x: Value, y: Value) -> Value:
        return self.call(functions.EQUAL, self.spread(node, x), self.spread(node, y), dtype=boolean)

    def of_FindKeys(self, node: Node, x: Value, keys: Value) -> Value:
        return self.call(functions.FIND, x, keys)

    def of_ChangeCase(self, node: Node, x: Value) -> Value:
        op: Any = node.op
        cases = np.array([ord(change_case(chr(c), op.upper)) for c in range(LETTERS)], np.int32)
        return self.call(functions.CHANGE_CASE, x, self.graph.add_constant(cases, "cases"))

    def of_StringSplit(self, node: Node, x: Value) -> tuple[Value, Value]:
        op: Any = node.op
        mark = self.handle(self.b.const([op.delimiter], string))
        most = -1 if op.maxsplit is None else op.maxsplit
        counts = self.call(functions.SPLIT_COUNT, x, mark, most=most)
        return self.call(functions.SPLIT, x, mark, counts, most=most), counts

    def of_FindTokens(self, node: Node, x: Value, *given: Value) -> tuple[Value, Value]:
        op: Any = node.op
        *tables, pad = given
        most = 2 * op.least + op.between
        counts = self.call(functions.TOKEN_COUNT, x, *tables, most=most)
        return self.call(functions.TOKENS, x, *tables, pad, counts, most=most), counts

    def of_RunAutomaton(self, node: Node, x: Value, bounds: Value, steps: Value, accepts: Value) -> Value:
        return self.call(functions.RUN_AUTOMATON, x, bounds, steps, accepts, dtype=boolean)

    def of_DistinctRows(self, node: Node, x: Value) -> tuple[Value, ...]:
        return self.b.add_all(node.op, self.call(functions.RANK, x))

    def of_Cast(self, node: Node, x: Value) -> Value:
        to, given = node.outputs[0].dtype, node.inputs[0]
        assert given is not None
        if to != string:
            numbers = self.call(functions.PARSE, x, dtype=f64)
            return self.b.add(node.op, self.b.Cast(numbers, to=f32) if to in F8 else numbers)
        if given.dtype == string:
            return x
        if given.dtype not in (f32, f64, boolean) and not given.dtype.is_integer:  # digits of narrow floats
            raise Problem(codes.UNSUPPORTED_TYPE, value=given.name, type=given.type)
        if given.dtype.is_integer and given.dtype != u64:
            x = self.b.Cast(x, to=i64)
        return self.call(functions.formatting(x.dtype.name), x)
