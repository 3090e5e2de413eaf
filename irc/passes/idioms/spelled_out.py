"""Operations that a format has in another layout, or not at all, in its words: so that these meet those around them."""

from __future__ import annotations

from irc.diagnostics import Problem
from irc.ir.dim import SizeUnknown
from irc.ir.graph import Graph, Node, Value
from irc.opdef.base import Op
from irc.opdef.builder import Builder, Rewrite
from irc.opdef.forms import Declined, Results
from irc.opdef.sizes import SizeBuilder
from irc.ops.cast import Cast
from irc.ops.microsoft_products import MatMulNBits
from irc.ops.recurrent import GRU, LSTM, RNN, Recurrent, write_sequence
from irc.ops.recurrent_openvino import GRUCell, GRUSequence, LSTMCell, LSTMSequence, RNNCell, RNNSequence
from irc.ops.shape import Expand
from irc.passes.inline import inline

SEQUENCES = (LSTMSequence, GRUSequence, RNNSequence)
NOT_IN: dict[str, tuple[type[Op], ...]] = {
    "openvino": (LSTM, GRU, RNN, MatMulNBits),
    "onnx": (*SEQUENCES, LSTMCell, GRUCell, RNNCell),
}


def run(graph: Graph, format: str) -> None:
    """Write what the format does not have in what it has, in place."""
    for node in graph.nodes:
        if not isinstance(node.op, NOT_IN[format]):
            continue
        rewrite: Rewrite | None = None
        if isinstance(node.op, Recurrent):
            rewrite = write_sequence
        elif isinstance(node.op, SEQUENCES) and _takes_all_steps(node):
            rewrite = _without_lengths
        try:
            parts = inline(graph, node, rewrite, SizeBuilder)
        except (Problem, Declined, SizeUnknown):  # the writer finds other words, or says why there are none
            continue
        for part in parts if len(parts) > 1 else ():
            part.name = f"{node.name}/{part.op.name}"


def _takes_all_steps(node: Node) -> bool:
    """Tell whether the lengths of a sequence are its number of steps, for the whole batch."""
    x, lengths = node.inputs[0], node.inputs[_place(node.op)]
    for kind in (Expand, Cast):
        made = lengths.producer if lengths is not None else None
        if made is not None and isinstance(made.op, kind):
            lengths = made.inputs[0]
    sizes = None if lengths is None else lengths.dims()
    return x is not None and bool(sizes) and all(size == x.shape[1] for size in sizes or ())


def _place(op: Op) -> int:
    return [p.name for p in op.sig.inputs].index("lengths")


def _without_lengths(b: Builder, op: Op, *operands: Value | None) -> Results:
    assert op.decompose is not None
    return op.decompose(b, *(None if i == _place(op) else v for i, v in enumerate(operands)))
