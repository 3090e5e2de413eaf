"""The passes of `compile`, in order: what `irc.driver` runs and `--dump-after PASS` names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from irc.diagnostics import Sink
from irc.ir.graph import Graph
from irc.passes import (
    attention,
    channel_scales,
    cse,
    decompose,
    define_sizes,
    fold,
    invariant_states,
    layers,
    many_operands,
    materialize,
    merge_branches,
    number_draws,
    pack_sequences,
    padding,
    products_before_loops,
    recompose,
    resolve_operands,
    simplify,
    size_constraints,
    take_branches,
    weights,
)

if TYPE_CHECKING:
    from irc.kernels import Isa
    from irc.loops.ir import Program
    from irc.loops.memory import MemoryPlan

Pass = tuple[str, Callable[[Graph, Sink], object]]


class Watch(Protocol):
    """Who looks on while sources are made, and changes nothing."""

    def graph(self, name: str, graph: Graph) -> None:
        """See the graph after the pass of that name; "load" stands for none yet."""
        ...

    def program(self, program: Program, plan: MemoryPlan) -> None:
        """See the functions of the model, and where its buffers are."""
        ...


def everywhere(run: Callable[[Graph, Sink], object]) -> Callable[[Graph, Sink], object]:
    """Make of a pass over one graph one that also runs on the regions in it, the outer graph first."""

    def on_all(graph: Graph, sink: Sink) -> None:
        for each in graph.nested():
            run(each, sink)

    return on_all


def _each(*passes: Pass) -> tuple[Pass, ...]:
    return tuple((name, everywhere(run)) for name, run in passes)


_TO_LOOPS: tuple[Pass, ...] = _each(
    ("invariant-states", lambda graph, sink: invariant_states.run(graph)),
    ("materialize", lambda graph, sink: materialize.run(graph)),
    ("fold", lambda graph, sink: fold.run(graph)),
    ("record-size-constraints", size_constraints.record),
    ("simplify", lambda graph, sink: simplify.run(graph)),
    ("recompose", lambda graph, sink: recompose.run(graph)),
    ("channel-scales", lambda graph, sink: recompose.run(graph, channel_scales.RULES)),
    ("merge-branches", lambda graph, sink: merge_branches.run(graph)),
    ("many-operands", lambda graph, sink: many_operands.run(graph)),
    ("resolve-operands", resolve_operands.run),
    ("decompose", decompose.run),
    ("materialize-2", lambda graph, sink: materialize.run(graph)),
    ("fold-2", lambda graph, sink: fold.run(graph)),
    ("weights", lambda graph, sink: weights.run(graph)),
    ("simplify-2", lambda graph, sink: simplify.run(graph)),
    ("products-before-loops", lambda graph, sink: products_before_loops.run(graph)),
    ("cse", lambda graph, sink: cse.run(graph)),
)

COMPILE_C: tuple[Pass, ...] = (
    *_each(("layers", lambda graph, sink: layers.run(graph)), ("take-branches", take_branches.run)),
    ("pack-sequences", pack_sequences.run),
    *_TO_LOOPS,
    ("define-sizes", define_sizes.run),
    ("decompose-2", everywhere(decompose.run)),
)
"""From a loaded graph to one that `irc.fusion.group` and `irc.loops.lower` take: run in place, on a copy.

Each adds its findings to the sink; stop on errors after each pass.
"""
_FOLD, _DECOMPOSE = ([name for name, _ in COMPILE_C].index(name) for name in ("fold", "decompose"))


def _quantized(isa: Isa) -> tuple[Pass, ...]:
    """List the passes over what is quantized, which come before constants are folded."""
    from irc.layout import (
        byte_tables,
        dynamic_quantization,
        fake_quantized,
        integer_convolutions,
        integer_products,
        integer_transposed,
        moved_bytes,
        narrow_weights,
        quantized_sums,
        softmax_of_bytes,
    )

    return _each(
        ("fold-sizes", lambda graph, sink: fold.run(graph, small=True)),
        ("padded-convolutions", lambda graph, sink: simplify.run(graph, padding.RULES)),
        ("fake-quantized", lambda graph, sink: fake_quantized.run(graph, isa)),
        ("moved-bytes", lambda graph, sink: moved_bytes.run(graph, isa)),
        ("integer-transposed", lambda graph, sink: integer_transposed.run(graph, isa)),
        ("integer-products", lambda graph, sink: integer_products.run(graph, isa)),
        ("integer-convolutions", lambda graph, sink: integer_convolutions.run(graph, isa)),
        ("byte-tables", lambda graph, sink: byte_tables.run(graph, isa)),
        ("quantized-sums", lambda graph, sink: quantized_sums.run(graph, isa)),
        ("softmax-of-bytes", lambda graph, sink: softmax_of_bytes.run(graph, isa)),
        ("dynamic-quantization", lambda graph, sink: dynamic_quantization.run(graph, isa)),
        ("narrow-weights", lambda graph, sink: narrow_weights.run(graph, isa)),
    )


def compile_c(isa: Isa, precision: str = "highest") -> tuple[Pass, ...]:
    """COMPILE_C, with what kernels of that instruction set take: composites before they are decomposed.

    precision: the least that products of f32 must have.
    """
    # here: loading and validating need no kernels
    from irc.layout import (
        bf16_storage,
        channels_last,
        concat_in_place,
        fold_taps,
        images,
        late_squeezes,
        narrow_transposes,
        narrow_weights,
        pixel_products,
        plane_pools,
        reduced_halves,
        residual_transposes,
        scaled_weights,
        texts,
        transposed_conv,
        trim_taps,
        wide_products,
    )
    from irc.selection import bands, select

    decoders = (("texts", texts.run), *_each(("images", images.run)))
    composites = _each(
        ("attention", attention.run),
        ("wide-products", lambda graph, sink: wide_products.run(graph)),
        ("narrow-weights-2", lambda graph, sink: narrow_weights.run(graph, isa)),
        ("select-composites", lambda graph, sink: select.run(graph, isa, True, precision)),
        ("transposed-conv", lambda graph, sink: transposed_conv.run(graph, isa, precision)),
        ("trim-taps", lambda graph, sink: trim_taps.run(graph)),
        ("fold-taps", lambda graph, sink: fold_taps.run(graph, isa)),
    )
    kernels = _each(
        ("reduced-halves", lambda graph, sink: reduced_halves.run(graph)),
        ("wide-products-2", lambda graph, sink: wide_products.run(graph)),
        ("late-squeezes", lambda graph, sink: late_squeezes.run(graph)),
        ("channels-last", lambda graph, sink: channels_last.run(graph, isa, precision)),
        ("pixel-products", lambda graph, sink: pixel_products.run(graph, isa, precision)),
        ("residual-transposes", lambda graph, sink: residual_transposes.run(graph)),
        ("scaled-weights", lambda graph, sink: scaled_weights.run(graph, isa, precision)),
        ("plane-pools", lambda graph, sink: plane_pools.run(graph)),
        ("narrow-transposes", lambda graph, sink: narrow_transposes.run(graph, isa)),
        ("concat-in-place", lambda graph, sink: concat_in_place.run(graph)),
        ("select-kernels", lambda graph, sink: select.run(graph, isa, precision=precision)),
    )
    if precision == "medium" and isa.dots:
        kernels += _each(("bf16-storage", lambda graph, sink: bf16_storage.run(graph)))
    kernels += _each(("bands", lambda graph, sink: bands.run(graph, isa)))
    before, folded, rest = COMPILE_C[:_FOLD], COMPILE_C[_FOLD:_DECOMPOSE], COMPILE_C[_DECOMPOSE:]
    if not isa.has_vectors:
        return (*before, *folded, *decoders, *rest)
    return (*before, *_quantized(isa), *folded, *decoders, *composites, *rest, *kernels)


COMPILE_NUMPY: tuple[Pass, ...] = (
    ("number-draws", number_draws.run),
    *_each(
        ("layers", lambda graph, sink: layers.run(graph)),
        ("take-branches", take_branches.run),
        ("invariant-states", lambda graph, sink: invariant_states.run(graph)),
        ("materialize", lambda graph, sink: materialize.run(graph)),
        ("fold", lambda graph, sink: fold.run(graph)),
        ("record-size-constraints", size_constraints.record),
        ("simplify", lambda graph, sink: simplify.run(graph)),
        ("products-before-loops", lambda graph, sink: products_before_loops.run(graph)),
        ("recompose", lambda graph, sink: recompose.run(graph)),
        ("channel-scales", lambda graph, sink: recompose.run(graph, channel_scales.RULES)),
        ("merge-branches", lambda graph, sink: merge_branches.run(graph)),
        ("cse", lambda graph, sink: cse.run(graph)),
    ),
)
"""From a loaded graph to one that `irc.backends.numpy.module` writes, in the same way."""
