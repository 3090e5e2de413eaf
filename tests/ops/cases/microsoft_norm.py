"""Normalisations and activations of com.microsoft."""

from irc.opdef.base import Op
from irc.ops.microsoft_norm import (
    BiasAdd,
    BiasGelu,
    BiasSoftmax,
    EmbedLayerNormalization,
    FastGelu,
    QuickGelu,
    SkipLayerNormalization,
    SkipSimplifiedLayerNormalization,
)
from tests.ops.cases import ALONE, Case, Spec


def f32(*shape: int, kind: str = "f32") -> Spec:
    return Spec(kind, shape)


def skip(op: Op, *optional: str, shape: tuple[int, ...] = (2, 3, 8), skipped: tuple[int, ...] = ()) -> Case:
    """SkipLayerNormalization and its simple kind.  ONNX Runtime leaves mean and deviation undefined."""
    size = shape[-1]
    more = ("beta", "bias") if isinstance(op, SkipLayerNormalization) else ("bias",)
    given = [f32(*shape), f32(*(skipped or shape)), f32(size), *(f32(size) if k in optional else None for k in more)]
    while given[-1] is None:
        given.pop()
    return Case(op, tuple(given), 2e-5, ALONE)


def embed(*optional: str) -> Case:
    ids = Spec("i32", (2, 5), 0, 6)
    given = [
        ids,
        Spec("i32", (2, 5), 0, 1) if "segment" in optional else None,
        f32(7, 8),
        f32(6, 8),
        f32(2, 8) if "segment" in optional else None,
        f32(8),
        f32(8),
        Spec("i32", (2, 5), values=(1, 1, 1, 0, 0, 1, 1, 1, 1, 1)) if "mask" in optional else None,
        Spec("i32", (2, 5), 0, 5) if "positions" in optional else None,
    ]
    while given[-1] is None:
        given.pop()
    return Case(EmbedLayerNormalization(), tuple(given), 2e-5)


CASES = [
    *(
        Case(BiasGelu(), (f32(2, 3, 8, kind=k), f32(8, kind=k)), r, n)
        for k, r, n in (("f32", 1e-5, ""), ("f16", 5e-3, ALONE))
    ),
    Case(FastGelu(), (f32(2, 3, 8),), 1e-5),
    Case(FastGelu(), (f32(2, 3, 8), f32(8)), 1e-5),
    *(Case(QuickGelu(**a), (f32(4, 9),), 1e-5) for a in ({}, {"alpha": 1.0}, {"alpha": -0.5})),
    Case(BiasAdd(), (f32(2, 3, 8), f32(8), f32(2, 3, 8)), 1e-6, ALONE),
    Case(BiasSoftmax(axis=3, is_inner_broadcast=True), (f32(2, 3, 4, 5), f32(2, 1, 1, 5)), 1e-5, ALONE),
    Case(BiasSoftmax(axis=3), (f32(2, 3, 4, 5), f32(1, 1, 4, 5)), 1e-5, ALONE),
    Case(BiasSoftmax(axis=2), (f32(2, 3, 4, 5), f32(1, 1, 4, 5)), 1e-5, ALONE),
    skip(SkipLayerNormalization()),
    skip(SkipLayerNormalization(epsilon=0.25), "beta", "bias"),
    skip(SkipLayerNormalization(), "bias", skipped=(3, 8)),
    skip(SkipLayerNormalization(), "beta", skipped=(1, 3, 8)),
    skip(SkipLayerNormalization(), "beta", shape=(3, 8)),
    skip(SkipSimplifiedLayerNormalization()),
    skip(SkipSimplifiedLayerNormalization(epsilon=0.25), "bias"),
    embed(),
    embed("segment"),
    embed("segment", "mask"),
    embed("mask", "positions"),
]
