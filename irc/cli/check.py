"""Whether two models compute the same: both run by irc's NumPy backend on the same random inputs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from irc.arrays import is_array
from irc.cli import feeds
from irc.diagnostics.core import IrcError

RELATIVE = 1e-4
"""Largest difference allowed, relative to the largest magnitude of the output."""
NARROW = 2e-2
"""The same for outputs of 16 bits and fewer."""


@dataclass(frozen=True)
class Outcome:
    """`same` is None where the models could not be compared, and `reason` says why."""

    same: bool | None
    reason: str


def same_results(source: Any, written: Any) -> Outcome:
    """Compare two models (paths or Models), input by input and output by output, in order."""
    try:
        reference = _compiled(source)
    except IrcError as e:
        return Outcome(None, f"the source cannot be run ({e})")
    if any(p.kind not in ("tensor", "optional") or p.shape is None for p in reference.inputs):
        return Outcome(None, "random arrays cannot stand for its inputs")
    outcome = Outcome(None, "")
    for size in (feeds.SYMBOL_SIZE, 1):
        sizes = {d: size for p in reference.inputs for d in p.shape or () if isinstance(d, str)}
        arrays = [feeds.random_value(p, sizes, seed=n) for n, p in enumerate(reference.inputs)]
        try:
            expected, again = [_run(reference, arrays) for _ in range(2)]
        except IrcError as e:
            outcome = Outcome(None, f"the source cannot be run on random inputs ({e})")
            continue
        if any(difference(a, b) for a, b in zip(expected, again, strict=True)):
            return Outcome(None, "its results are random")
        return _compare(reference, expected, _run(_compiled(written), arrays, initial_states(written)))
    return outcome


def _compiled(model: Any) -> Any:
    import irc

    return irc.compile(model, backend="numpy", cache=False)


def _run(compiled: Any, arrays: list[Any], states: dict[str, Any] | None = None) -> list[Any]:
    """The outputs for these arrays; inputs beyond them are state, which starts at its initial value."""
    compiled.reset_state()
    rest = compiled.inputs[len(arrays) :]
    return list(compiled([*arrays, *[_initial(i, (states or {}).get(i.name)) for i in rest]]))


def _initial(spec: Any, value: Any) -> Any:
    shape = tuple(feeds.SYMBOL_SIZE if isinstance(d, str) else d for d in spec.shape)
    if value is None:
        return np.zeros(shape, spec.dtype)
    return np.asarray(value, spec.dtype).reshape(shape)


def initial_states(model: Any) -> dict[str, Any]:
    """Initial values (None: zeros) of the inputs that a written ONNX model has for its state, by name."""
    import irc

    loaded = irc.load(model) if isinstance(model, str) else model
    return {name: initial for name, _, initial in json.loads(loaded.metadata.get("irc.state", "[]"))}


def _compare(reference: Any, expected: list[Any], got: list[Any]) -> Outcome:
    worst = 0.0
    for spec, a, b in zip(reference.outputs, expected, got, strict=False):
        apart = difference(a, b)
        allowed = NARROW if is_array(a) and a.dtype.itemsize <= 2 else RELATIVE
        if apart > allowed:
            return Outcome(False, f"output {spec.name} differs by {apart:.3g} of its largest magnitude")
        worst = max(worst, apart)
    agree = f"{len(expected)} output{' agrees' if len(expected) == 1 else 's agree'}"
    return Outcome(True, f"{agree}, largest relative difference {worst:.2g}")


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def difference(a: Any, b: Any, exact_integers: bool = True) -> float:
    """The largest difference relative to the largest magnitude; inf where types, shapes or kinds differ.

    exact_integers: any difference of integers is infinite.
    """
    if _is_list(a) and _is_list(b) and len(a) == len(b):
        return max((difference(x, y, exact_integers) for x, y in zip(a, b, strict=True)), default=0.0)
    if not is_array(a) or not is_array(b):
        return 0.0 if a == b else float("inf")
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if a.dtype.kind in "OUSb":
        return 0.0 if np.array_equal(a, b) else float("inf")
    x, y = (v.astype(np.complex128 if v.dtype.kind == "c" else np.float64) for v in (a, b))
    alike = (x == y) | (np.isnan(x) & np.isnan(y))
    if alike.all():
        return 0.0
    if (exact_integers and a.dtype.kind in "iu") or not np.isfinite(np.stack([x[~alike], y[~alike]])).all():
        return float("inf")
    return float(np.abs(x - y)[~alike].max() / max(np.abs(x[np.isfinite(x)]).max(), 1e-6))
