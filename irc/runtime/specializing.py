"""`SpecializingModel`: a model whose code depends on the shapes of a call, compiled when these are known.

An operation of unknown rank has no index functions, and an If whose branches differ in rank has no type, until sizes
decide it.  Ranks are tried first, so that calls of other sizes share the code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from irc.arrays import Array
from irc.diagnostics.codes import lowering as codes
from irc.diagnostics.codes.runtime_io import NO_NUMPY_SOURCE
from irc.diagnostics.core import CompileError
from irc.runtime.executor import CompiledModel

MOST = 16
"""Compiled forms that are kept; the oldest goes first."""
Shapes = Mapping[str, tuple[int | None, ...] | None]
"""Shapes of inputs, or of the elements of sequences, as `irc.passes.bind` takes them."""
Contents = dict[str, tuple[int, ...]]
"""Elements of integer inputs."""
Make = Callable[[Shapes, Contents], CompiledModel]
SMALL = 16
"""Elements of an integer input whose values may be compiled in."""


class SpecializingModel(CompiledModel):
    """A model that compiles itself for the ranks of each call, or for its shapes where ranks do not do.

    Where shapes do not do either, values of small integer inputs are compiled in, too. It is called as a
    `CompiledModel` is; a call for which it has compiled before is as fast, another may raise CompileError.
    There is no artefact to save: fix the shapes (`shapes=`, `--shape`) for one.
    """

    def __init__(self, manifest: dict[str, Any], threads: int, make: Make, error: CompileError) -> None:
        self._describe(manifest)
        self._manifest = manifest
        self.threads, self._make, self._error = threads, make, error
        self._known: dict[tuple[Any, ...], CompiledModel | None] = {}

    def __call__(self, *inputs: Any, out: Sequence[Array] | None = None) -> list[Any]:
        """Run the model, as `CompiledModel` does. Raises CompileError as well."""
        values = self._arguments(inputs)
        return self._for(values)(self._named(values), out=out)

    def bind(
        self, inputs: Sequence[Array] | Mapping[str, Array], outputs: Sequence[Array] | None = None
    ) -> Callable[[], list[Array]]:
        """Make a function that runs over the current contents of these buffers, as `CompiledModel` does."""
        values = self._arguments((inputs,))
        return self._for(values).bind(self._named(values), outputs)

    def reset_state(self) -> None:
        """Do nothing: a model with state is never compiled for each call."""

    def run_times(self) -> list[int]:
        """Return nothing: profiling needs one artefact."""
        return []

    def copy_files(self, folder: str | Path) -> bool:
        """Raise the CompileError that says what must be known for an artefact."""
        raise self._error

    def __reduce__(self) -> tuple[Any, ...]:
        return SpecializingModel, (self._manifest, self.threads, self._make, self._error)

    def _named(self, values: Sequence[Any]) -> dict[str, Any]:
        return {port.name: v for port, v in zip(self.inputs, values, strict=True)}

    def _for(self, values: list[Any]) -> CompiledModel:
        """Find, or compile, the model for such values."""
        self._check(values)
        pairs = list(zip(self.inputs, values, strict=True))
        ranks: Shapes = {p.name: ranks_of(v) for p, v in pairs if p.shape is None}
        sizes: Shapes = {p.name: np.shape(v) for p, v in pairs if p.kind == "tensor"}
        integers = {p.name: tuple(v.reshape(-1).tolist()) for p, v in pairs if p.kind == "tensor" and _is_small(v)}
        ways: list[tuple[Shapes, Contents]] = [(ranks, {}), ({**ranks, **sizes}, {}), ({**ranks, **sizes}, integers)]
        for shapes, contents in ways:
            if not shapes:
                continue
            key = (*sorted(shapes.items()), *sorted(contents.items()))
            if key in (forms := self._known):
                found = forms[key]
            else:
                found = self._compiled(shapes, contents)
                self._known = dict([*forms.items(), (key, found)][-MOST:])  # other threads keep what they read
            if found is not None:
                return found
        raise self._error

    def _compiled(self, shapes: Shapes, contents: Contents) -> CompiledModel | None:
        """Compile the model. Returns None if more than this must be known; raises CompileError."""
        try:
            return self._make(shapes, contents)
        except CompileError as e:
            if not needs_ranks(e):
                raise
            self._error = e
            return None


def _is_small(array: Array) -> bool:
    """Tell whether an argument may be axes or sizes, on whose values ranks depend."""
    return array.dtype.kind in "iu" and array.size <= SMALL


def needs_ranks(error: CompileError) -> bool:
    """Tell whether a model cannot be compiled because of ranks that are unknown, and of what may follow from these."""
    found = {d.code for d in error.diagnostics}
    ranks = {codes.RANK_NEEDED.id, codes.UNSUPPORTED_TYPE.id}
    return bool(found & ranks) and found <= ranks | {codes.DATA_DEPENDENT.id, NO_NUMPY_SOURCE.id}


def ranks_of(value: Any) -> tuple[None, ...] | None:
    """Find the rank of an argument, as that many unknown sizes.

    Of a sequence it is that of the elements, whose rank the first one says; None if there is none.
    """
    if value is None:
        return None
    if isinstance(value, list | tuple):
        elements = cast("Sequence[Any]", value)
        return ranks_of(elements[0]) if elements else None
    return (None,) * np.ndim(value)
