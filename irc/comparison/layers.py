"""Two models layer by layer: the first tensor that they do not agree in, found with a few outputs a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from irc.arrays import is_array
from irc.comparison.bisection import OUTPUTS_A_RUN, Search
from irc.comparison.matching import Pair, operands, pairs_of
from irc.comparison.measures import NARROW, RELATIVE, Distance, difference, for_both, measure
from irc.comparison.side import Side, misfit, paired_ports


@dataclass(frozen=True)
class Verdict:
    """What is said of one tensor of both models; `reason` where types or shapes say that they differ."""

    type: str
    distance: Distance
    allowed: float
    reason: str = ""

    @property
    def differs(self) -> bool:
        """Whether it is out of tolerance."""
        return bool(self.reason) or not self.distance.relative <= self.allowed


@dataclass(frozen=True)
class Found:
    """The result of comparing by layers.

    first: a tensor out of tolerance whose nearest matched operands are all within it; None if the outputs and
    samples of what leads to them agree.  outputs_agree: whether an error inside has not reached them.
    matched: tensors that both models have; seen: those that were looked at, in so many runs of each model.
    """

    first: Pair | None
    verdict: Verdict | None
    operands: tuple[str, ...]
    matched: int
    seen: int
    runs: int
    outputs_agree: bool


def compare_layers(
    a: Side, b: Side, arguments: Sequence[Any], tolerance: float | None = None, at_once: int = OUTPUTS_A_RUN
) -> Found:
    """Find the first tensor in which two models differ for these arguments, in the order of the inputs of `a`.

    Inputs of two widths of floats get numbers of the narrower.  Only the parts that lead to `at_once` tensors are
    loaded and run, one model after the other.  tolerance: the largest relative difference; by default what rounding
    explains, and integers exact but for those of 8 bits, which are quantized values.  IrcError IRC4910 where inputs
    or outputs are not as many.
    """
    inputs, outputs = paired_ports(a.inputs, b.inputs), paired_ports(a.outputs, b.outputs)
    if inputs is None or outputs is None:
        raise misfit("inputs" if inputs is None else "outputs", a, b)
    arguments, others = list(arguments), [None] * len(b.inputs)
    for i, k in inputs:
        arguments[i], others[k] = for_both(arguments[i], a.inputs[i].dtype, b.inputs[k].dtype)
    ends = [(a.own_outputs[i], b.own_outputs[k]) for i, k in outputs]
    pairs = pairs_of(a.graph, b.graph, ends)
    verdicts: dict[int, Verdict] = {}

    def differ(tensors: Sequence[int]) -> list[bool]:
        chosen = [pairs[i] for i in tensors]
        first = a.run([p.a.key for p in chosen], arguments)
        second = b.run([p.b.key for p in chosen], others)
        verdicts.update({i: judge(x, y, tolerance) for i, x, y in zip(tensors, first, second, strict=True)})
        return [verdicts[i].differs for i in tensors]

    keys = [p.a.key for p in pairs]
    leading = operands(a.graph, keys)
    search = Search(leading, differ, at_once)
    last = {x for x, _ in ends}
    places = [i for i, key in enumerate(keys) if key in last]
    found = search.first_of(places)
    same = not any(search.known[i] for i in places)
    if found is None:
        return Found(None, None, (), len(pairs), len(verdicts), search.runs, same)
    agree = tuple(pairs[i].a.name for i in leading[found])
    return Found(pairs[found], verdicts[found], agree, len(pairs), len(verdicts), search.runs, same)


def judge(a: Any, b: Any, tolerance: float | None = None) -> Verdict:
    """Compare a tensor of two models: floats of any width with floats, integers with integers."""
    if not is_array(a) or not is_array(b):
        return Verdict(type(a).__name__, Distance(difference(a, b)), RELATIVE if tolerance is None else tolerance)
    said = _described(a)
    narrow = min(a.dtype.itemsize, b.dtype.itemsize)
    allowed = tolerance if tolerance is not None else NARROW if narrow <= 2 else RELATIVE
    if a.shape != b.shape:
        return Verdict(said, Distance(float("inf")), allowed, f"{said} and {_described(b)}")
    exact = tolerance is None and narrow > 1
    if a.dtype != b.dtype:
        kinds = [
            "integer" if x.dtype.kind in "iu" else x.dtype.kind if x.dtype.kind in "bOUS" else "float" for x in (a, b)
        ]
        if kinds[0] != kinds[1]:
            return Verdict(said, Distance(float("inf")), allowed, f"{said} and {_described(b)}")
        wide, said = (np.int64 if kinds[0] == "integer" else np.float64), f"{said} and {_described(b)}"
        narrower = min(a.dtype, b.dtype, key=lambda dtype: dtype.itemsize)
        return Verdict(said, measure(a.astype(wide), b.astype(wide), exact, narrower), allowed)
    return Verdict(said, measure(a, b, exact), allowed)


def _described(array: Any) -> str:
    return f"{'string' if array.dtype.kind in 'OUS' else array.dtype}[{','.join(map(str, array.shape))}]"
