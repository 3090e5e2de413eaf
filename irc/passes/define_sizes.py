"""Sizes that only a run tells become values that the model computes: `Graph.sizes`.

Every operation whose result has such a size says how it is computed (`Op.run_sizes`), in terms of other operations.
From then on the symbol is a parameter of all that comes later, as a size of an input is from the beginning
(docs/adr/0020-sizes-defined-by-the-run.md).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from irc.diagnostics import Sink
from irc.diagnostics.codes import lowering as codes
from irc.ir.dim import Dim
from irc.ir.graph import Graph, Node, Value, symbols_of
from irc.ir.types import TensorType
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_i64
from irc.passes import size_constraints
from irc.passes.region_sizes import define_in_regions


def run(graph: Graph, sink: Sink, around: Collection[str] = ()) -> None:
    """Define, in place, every symbol that no input and no variable has.  One that nothing defines is a finding.

    In regions too, which know the sizes of the graph around them, as `around` says of this one.
    """
    given = symbols_of([*graph.inputs, *(v for n in graph.nodes if n.op.effect for v in n.outputs)]).keys() | {*around}
    regions = [r for n in graph.nodes for r in n.op.regions]
    if not regions and not any(symbols_of(n.outputs).keys() - given for n in graph.nodes):
        return
    _constraints_again(graph, sink, set(given))
    known, missing = set(given), dict[str, Node]()
    for node in graph.nodes:
        for region in node.op.regions:
            run(region, sink, known)
        new = symbols_of(node.outputs).keys() - known
        if new:
            with sink.catching(node.loc):
                if node.op.regions:
                    define_in_regions(graph, node, new)
                else:
                    _define(graph, node, new)
            for name in sorted(new & graph.sizes.keys()):
                if _needs(graph.sizes[name], name):  # another operation tells, or has been decomposed
                    del graph.sizes[name]
            known |= new & graph.sizes.keys()
            missing |= {name: node for name in sorted(new - graph.sizes.keys()) if name not in missing}
    for name, node in missing.items():
        if name not in graph.sizes:
            value = next(v for v in node.outputs if name in symbols_of([v]))
            sink.report(codes.DATA_DEPENDENT, node.loc, symbol=name, value=value.name, op=node.op.name)


def _define(graph: Graph, node: Node, new: Collection[str]) -> None:
    """Add what computes the sizes of these names, which a node's results have first.  Raises Problem."""
    types = [v.type for v in node.outputs]
    if node.op.run_sizes is None or not all(isinstance(t, TensorType) for t in types):
        return
    b = Builder(graph, f"{node.name or node.op.name}/size", node.loc, layers=node.layers)
    for size, value in node.op.run_sizes(b, types[0] if len(types) == 1 else types, *node.inputs):
        symbol = size.symbol_alone()
        if symbol is not None and symbol.name in new:
            graph.sizes[symbol.name] = as_i64(b, value)


def _needs(value: Value, name: str) -> bool:
    """Tell whether a value is computed from what has that symbol."""
    waiting, seen = [value], set[Value]()
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        contents = () if value.contents is None else value.contents.flat
        if name in symbols_of([value]) or any(name == s.name for d in contents for s in Dim.of(d).symbols()):
            return True
        waiting += value.producer.operands if value.producer is not None else ()
    return False


def _constraints_again(graph: Graph, sink: Sink, given: set[str]) -> None:
    """Record what inferring symbolic types again, so that each symbol has one name, demands of sizes.

    What was recorded before holds still, in terms of what came in the place of values that were replaced.
    """
    renamed = {name: size for name, size in graph.renamed.items() if name not in given}
    for _ in range(len(renamed)):  # a value may have been replaced again
        later = {name: size.subs(renamed) for name, size in renamed.items()}
        if later == renamed:
            break
        renamed = later
    before = [replace(d, relation=d.relation.subs(renamed)) for d in size_constraints.recorded(graph)]
    size_constraints.record(graph, sink)
    found = {(d.relation, d.code): d for d in (*before, *size_constraints.recorded(graph))}
    graph.extras[size_constraints.RECORDED] = [d for d in found.values() if d.relation.decide() is not True]
