"""What keeps a prepared graph from being compiled: the memory that it needs, and values without a rank."""

from __future__ import annotations

from irc.diagnostics import CompileError, Loc, Sink
from irc.diagnostics.codes import lowering
from irc.ir.dim import Dim
from irc.ir.graph import Graph
from irc.ir.limits import run_memory
from irc.ir.types import TensorType


def require_memory(graph: Graph, arena: Dim | None = None) -> None:
    """Refuse sizes that are known and need more than `irc.ir.limits.run_memory()`.  CompileError IRC5008.

    They are those of the outputs and of C's arena, without which every value counts.
    """
    sink, most = Sink(), run_memory()
    for value in graph.values() if arena is None else graph.outputs:
        kind = value.type
        if value.const is None and isinstance(kind, TensorType) and kind.is_static:
            need = int(kind.elements()) * kind.dtype.itemsize
            if need > most:
                loc = value.producer.loc if value.producer else value.loc
                sink.report(lowering.NEEDS_MEMORY, loc, what=f"{value.name}, {kind},", need=need, limit=most)
    if arena is not None and arena.is_const and int(arena) > most:
        sink.report(lowering.NEEDS_MEMORY, Loc(), what="what the model computes", need=int(arena), limit=most)
    sink.stop_on_errors(CompileError)


def require_ranks(graph: Graph) -> None:
    """Refuse values that are no tensors of known rank: index functions and loops need one.  CompileError IRC5003."""
    sink = Sink()
    for value in graph.values():
        if not isinstance(value.type, TensorType) or value.type.shape is None:
            loc = value.producer.loc if value.producer else value.loc
            sink.report(lowering.UNSUPPORTED_TYPE, loc, value=value.name, type=value.type)
    sink.stop_on_errors(CompileError)
