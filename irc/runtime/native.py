"""Runs an artefact of the C backend: its shared library, through ctypes.

The context (arena and state) is memory of this process, aligned to 64 bytes, planned again only when the
sizes change.  ctypes releases the GIL while the model runs.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from irc.arrays import NumpyType
from irc.diagnostics.codes import find, runtime, runtime_io as codes
from irc.diagnostics.core import RunError
from irc.files import open_regular, read_into
from irc.runtime import c_strings
from irc.runtime.alignment import ALIGNMENT, aligned_bytes, first_elements, result_array
from irc.runtime.artifact import WEIGHTS, Artifact, damaged
from irc.runtime.errors import InputValueError, OutOfMemory, failure
from irc.runtime.forks import Turns
from irc.runtime.pool import pool_for
from irc.runtime.ports import REMEMBERED, Array, Port
from irc.runtime.repeated import RepeatedCall, Result
from irc.toolchain.processor import check_features

_INPUT_ERRORS = {code.number for code in runtime.REFUSED_INPUTS}
FIRST_LIMIT = 256
"""What a size that nothing bounds may come to before memory is planned again for the larger one."""
_IN_BUFFERS = "?biufc"
"""Kinds of element types that the buffer protocol knows; not those of ml_dtypes."""
COPIED = 1 << 20
"""Bytes of weights that are read into memory of the process; larger ones are mapped, so that processes share them.

Copies of many megabytes are slower to read than pages of a file (an LSTM's of 14 MB by a fifth)."""


class NativeEngine:
    """One context of a compiled model; calls of it must take turns."""

    def __init__(self, artifact: Artifact, inputs: Sequence[Port], outputs: Sequence[Port], threads: int) -> None:
        manifest = artifact.manifest
        self.name, self.folder, self.threads = manifest["name"], artifact.folder, threads
        self.inputs, self.outputs = inputs, [c_strings.in_memory(p) for p in outputs]
        self._string_inputs = [k for k, p in enumerate(inputs) if p.element == c_strings.STRING]
        self._string_outputs = [k for k, p in enumerate(outputs) if p.element == c_strings.STRING]
        target = manifest["target"]
        check_features(target["name"], target["machine"], target["features"])
        library = manifest.get("library")
        if library not in artifact.files or not artifact.path(library).is_file():
            raise failure(codes.NO_LIBRARY, path=artifact.folder, holds="no shared library")
        self._prefix: str = manifest["prefix"]
        self._load(artifact.path(library), self._prefix, bool(manifest.get("limits")))
        self._weights: Array | None = None
        self._mapped: tuple[int, int] | None = None  # descriptor and size of a mapped file
        self._weights_file: str = manifest.get("weights", WEIGHTS)
        if artifact.files.get(self._weights_file, {}).get("bytes"):
            self._open_weights(artifact)
        self._pool_library = artifact.path(manifest["pool"]) if manifest.get("pool") else None
        self._symbols = len(manifest.get("symbols", ()))
        self._limits = (FIRST_LIMIT,) * len(manifest.get("limits", ()))
        self.has_state = bool(manifest.get("states"))
        self._memory: Array | None = None
        self._context = 0
        self._planned: tuple[int, ...] | None = None
        self._shapes: dict[tuple[int, ...], list[tuple[tuple[int, ...], NumpyType]]] = {}
        self._ranks = [len(p.shape or ()) for p in self.outputs]
        self._measured = any(p.max_sizes is not None for p in outputs)
        if not self._symbols and not self._limits:
            self.plan(())

    def _load(self, path: Path, prefix: str, limits: bool) -> None:
        try:
            library = open_library(path)
        except OSError as e:
            raise failure(codes.NO_LIBRARY, path=self.folder, holds=f"a library that does not load ({e})") from e
        self._library = library
        pointer, sizes = ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64)
        self._context_size = self._function(f"{prefix}_context_size", ctypes.c_size_t, sizes)
        self._init = self._function(f"{prefix}_init", ctypes.c_int, pointer, pointer, pointer)
        self._plan = self._function(f"{prefix}_plan", ctypes.c_int, pointer, sizes)
        self._run = self._function(f"{prefix}_run", ctypes.c_int, pointer, pointer, pointer, pointer)
        self._reset = self._function(f"{prefix}_reset", None, pointer)
        if limits:
            self._needed = self._function(f"{prefix}_needed", None, pointer, sizes)

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        found = getattr(self._library, name)
        found.restype, found.argtypes = result, arguments
        return found

    def _open_weights(self, artifact: Artifact) -> None:
        """Read or map the weights, as many bytes as the manifest says."""
        wanted = artifact.files[self._weights_file]["bytes"]
        try:
            fd = open_regular(artifact.path(self._weights_file))
        except OSError as e:
            raise damaged(artifact, f"{self._weights_file} cannot be opened ({e.strerror})") from e
        weakref.finalize(self, os.close, fd)
        found = os.fstat(fd).st_size
        if found != wanted:
            raise damaged(artifact, f"{self._weights_file} has {found} bytes instead of {wanted}")
        if wanted > COPIED:
            mapped = mmap.mmap(fd, wanted, access=mmap.ACCESS_READ)
            if hasattr(mmap, "MADV_HUGEPAGE"):
                with suppress(OSError):  # a kernel without large pages: then they are small
                    mapped.madvise(mmap.MADV_HUGEPAGE)
            self._weights, self._mapped = np.frombuffer(mapped, np.uint8), (fd, wanted)
        else:
            self._weights = aligned_bytes(wanted)
            read_into(fd, self._weights, 0, partial(damaged, artifact))

    def _check_mapped(self) -> None:
        """Refuse to run on a file that has been cut short: reading beyond its end would end the process."""
        if self._mapped is not None and os.fstat(self._mapped[0]).st_size < self._mapped[1]:
            what = f"{self._weights_file} has been cut short since it was opened"
            raise failure(codes.ARTEFACT_DAMAGED, path=self.folder, what=what)

    # ------------------------------------------------------------------------ context
    def plan(self, dims: tuple[int, ...]) -> None:
        """Make the context ready for these sizes; state survives."""
        dims += self._limits
        if dims == self._planned:
            return
        if self.threads > 1:
            pool_for(self._pool_library, self.threads)  # after a fork, with threads of this process
        sizes = (ctypes.c_int64 * max(len(dims), 1))(*dims)
        needed = self._context_size(sizes if dims else None)
        if needed == 0:
            self._refuse(sizes)
        if self._memory is None or self._memory.nbytes < needed + ALIGNMENT:
            self._grow(needed)
        if dims:
            self._check(self._plan(self._context, sizes))
        self._planned = dims

    def _refuse(self, sizes: Any) -> None:
        """Raise the error that P_plan gives for sizes without a context."""
        self._check(self._plan(None, sizes) or runtime.SIZE_OUT_OF_RANGE.number)

    def _grow(self, needed: int) -> None:
        """Allocate a larger context, which keeps the header and state of the old one."""
        old = self._memory, self._context
        try:
            memory = np.zeros(needed + ALIGNMENT, np.uint8)
        except (MemoryError, ValueError) as e:  # NumPy has its own limit of sizes
            reason = f"{needed} bytes for the tensors of {self.name!r} could not be allocated"
            raise failure(codes.NO_MEMORY, OutOfMemory, reason=reason) from e
        start = memory.__array_interface__["data"][0]
        context = -(-start // ALIGNMENT) * ALIGNMENT
        if old[0] is None:
            weights = None if self._weights is None else self._weights.__array_interface__["data"][0]
            self._pool = pool_for(self._pool_library, self.threads)
            self._check(self._init(context, weights, self._pool))
        else:
            ctypes.memmove(context, old[1], old[0].nbytes - ALIGNMENT)
        self._memory, self._context = memory, context

    def after_fork(self, interrupted: bool) -> None:
        """Plan again in a child; in a new context if another thread was inside a call."""
        self._planned = None
        if interrupted:
            self._memory, self._context = None, 0

    def reset(self) -> None:
        """Set the variables to their initial values."""
        if self._memory is not None:
            self._reset(self._context)

    def times(self, count: int) -> list[int]:
        """Return the first `count` times of P_profile, of a build for profiling, in nanoseconds."""
        return list(self._function(f"{self._prefix}_profile", ctypes.POINTER(ctypes.c_int64))()[:count])

    # ---------------------------------------------------------------------------- runs
    def run(self, arrays: Sequence[Array], dims: tuple[int, ...], out: Sequence[Array] | None) -> list[Array]:
        """Run on C-contiguous arrays of checked types and sizes."""
        self._check_mapped()
        if self._string_inputs:
            arrays, _alive = self._with_pairs(arrays)
        measured = np.zeros(max(sum(self._ranks), 1), np.int64) if self._measured else None
        where = None if measured is None else measured.__array_interface__["data"][0]
        with self._limits_kept():
            try:
                made = self._run_with_limits(arrays, dims, out, where)
            except RunError:
                if self._planned == dims + self._limits:  # the run has failed, not the plan for it
                    raise
                # planned for the largest of each size in several runs; what this one needs may be less
                self._limits = (1,) * len(self._limits)
                made = self._run_with_limits(arrays, dims, out, where)
        results = made if measured is None else self._cut(made, measured)
        for k in self._string_outputs:
            results[k] = c_strings.taken(results[k])
        return results

    def repeated(self, names: Sequence[str], arrays: Sequence[Array]) -> RepeatedCall | None:
        """Prepare further calls like one that has just run on these arrays; None if calls of this model differ."""
        planned = self._planned
        if planned is None or planned not in self._shapes or self._string_inputs or self._string_outputs:
            return None
        forms = zip(self._shapes[planned], self._ranks, self.outputs, strict=True)
        made = [Result(*form, rank, p.max_sizes is not None) for form, rank, p in forms]
        kinds = [a.dtype.kind for a in arrays] + [m.dtype.kind for m in made]
        empty = any(not a.size for a in arrays) or any(0 in m.shape for m in made)
        if empty or not all(kind in _IN_BUFFERS for kind in kinds):
            return None
        run, context, check, mapped = self._run, self._context, self._check, self._mapped

        def start(inputs: Any, outputs: Any, sizes: Any) -> bool:
            if self._planned != planned or self._context != context:
                return False
            if mapped is not None:
                self._check_mapped()
            if status := run(context, inputs, outputs, sizes):
                if status == runtime.SIZE_BEYOND_BOUND.number:
                    return False
                check(status)
            return True

        return RepeatedCall(names, arrays, made, start)

    def _run_with_limits(
        self, arrays: Sequence[Array], dims: tuple[int, ...], out: Sequence[Array] | None, where: int | None
    ) -> list[Array]:
        """Run, again with more room for computed sizes where that is needed. Returns the outputs."""
        while True:
            self.plan(dims)
            made = self._results(dims + self._limits) if out is None else list(out)
            status = self._run(self._context, _pointers(arrays), _pointers(made), where)
            if status != runtime.SIZE_BEYOND_BOUND.number or not self._raise_limits():
                self._check(status)
                return made

    @contextmanager
    def _limits_kept(self) -> Iterator[None]:
        """Restore the limits of computed sizes if a run fails: what it asked for is no measure for later ones."""
        before = self._limits
        try:
            yield
        except RunError:
            self._limits = before
            raise

    def _with_pairs(self, arrays: Sequence[Array]) -> tuple[list[Array], list[object]]:
        """Lay out the arrays of strings for C.  Returns all arrays, and what must outlive the run."""
        found, alive = list(arrays), list[object]()
        for k in self._string_inputs:
            found[k], memory = c_strings.given(found[k])
            alive.append(memory)
        return found, alive

    def _raise_limits(self) -> bool:
        """Make room for what the latest run needed.  Returns whether a bound that was planned with is too small."""
        if not self._limits:
            return False
        sizes = (ctypes.c_int64 * (self._symbols + len(self._limits)))()
        self._needed(self._context, sizes)
        pairs = list(zip(self._limits, tuple(sizes)[self._symbols :], strict=True))
        self._limits = tuple(old if new == old else max(new, 2 * old) for old, new in pairs)
        return any(new != old for old, new in pairs)

    def _results(self, dims: tuple[int, ...]) -> list[Array]:
        """Allocate arrays for the outputs."""
        shapes = self._shapes.get(dims)
        if shapes is None:
            if len(self._shapes) >= REMEMBERED:
                self._shapes.clear()
            shapes = self._shapes[dims] = [(p.shape_for(dims), p.dtype) for p in self.outputs]
        try:
            return [result_array(shape, dtype) for shape, dtype in shapes]
        except (MemoryError, ValueError):
            return [p.allocate(dims) for p in self.outputs]  # reports the output for which there is no memory

    def _cut(self, made: list[Array], measured: Array) -> list[Array]:
        """Cut outputs whose size is known only after the run to that size."""
        results: list[Array] = []
        at = 0
        for port, rank, array in zip(self.outputs, self._ranks, made, strict=True):
            shape = tuple(int(d) for d in measured[at : at + rank])
            at += rank
            cut = port.max_sizes is not None and shape != array.shape
            results.append(first_elements(array, shape) if cut else array)
        return results

    def bind(
        self, arrays: list[Array], read: list[Array], dims: tuple[int, ...], made: list[Array], turns: Turns
    ) -> Callable[[], list[Array]]:
        """Make a function that runs over these buffers: one call into C.

        `read` are the arrays that it reads: where one is another than in `arrays`, that is copied into it first.
        """
        ins, outs = _pointers(read), _pointers(made)
        copied = [(own, given) for own, given in zip(read, arrays, strict=True) if own is not given]
        run, mapped = self._run, self._mapped
        with turns.lock:
            self.plan(dims)

        def call() -> list[Array]:
            with turns.lock:
                if self._planned != dims + self._limits:
                    turns.require_state()
                    self.plan(dims)
                for own, given in copied:
                    np.copyto(own, given)
                if mapped is not None:
                    self._check_mapped()
                if status := run(self._context, ins, outs, None):
                    self._run_again(status, dims, ins, outs)
            return made

        call.inputs = read  # type: ignore[attr-defined]  # their memory must outlive the call
        return call

    def _run_again(self, status: int, dims: tuple[int, ...], ins: Any, outs: Any) -> None:
        """Run once more, with more room for computed sizes, after a run that lacked it; other failures are raised."""
        with self._limits_kept():
            while status == runtime.SIZE_BEYOND_BOUND.number and self._raise_limits():
                self.plan(dims)
                status = self._run(self._context, ins, outs, None)
            self._check(status)

    def _check(self, status: int) -> None:
        """Raise the error for the number of a diagnostic that C returned."""
        if not status:
            return
        code = f"IRC{status}"
        known = find(code)
        kind = InputValueError if status in _INPUT_ERRORS or status < 4000 else RunError
        raise failure(codes.CODE_FAILED, kind, model=self.name, code=code, what=known.message if known else "unknown")


_OPENED: dict[str, tuple[int, int]] = {}
"""Libraries that this process has opened, by path: device and inode of the file that was there."""


def open_library(path: Path) -> ctypes.CDLL:
    """Load a shared library. Raises OSError.

    The system's loader takes a path it has seen for the library it has loaded, even if another file is there
    by now (a model compiled again into the same folder); then a copy under another name is loaded.
    """
    name, found = str(path.resolve()), path.stat()
    identity = found.st_dev, found.st_ino
    if _OPENED.setdefault(name, identity) == identity:
        return ctypes.CDLL(name)
    with tempfile.TemporaryDirectory(prefix="irc-") as folder:
        return ctypes.CDLL(str(shutil.copyfile(path, Path(folder, path.name))))


def _pointers(arrays: Sequence[Array]) -> Any:
    """Make a C array of the arrays' addresses."""
    return (ctypes.c_void_p * max(len(arrays), 1))(*[_address(a) for a in arrays])


def _address(array: Array) -> int:
    """Return the address of the elements, if possible through the buffer protocol, which is much faster."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    except (TypeError, ValueError):  # read-only, empty, or of an element type unknown to buffers
        return array.ctypes.data
