"""`CompiledModel`: loads an artefact and runs it."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from irc.diagnostics.codes import runtime_io as codes
from irc.diagnostics.core import RunError
from irc.diagnostics.terminal import visible
from irc.runtime import artifact as storage
from irc.runtime.artifact import Artifact
from irc.runtime.cache import open_folder, remember_written, require_unchanged, unpacked_folder
from irc.runtime.errors import InputTypeError, InputValueError, failure
from irc.runtime.foreign import shared
from irc.runtime.forks import Turns, renew_after_fork
from irc.runtime.manifest import wrong_fields
from irc.runtime.module_engine import ModuleEngine
from irc.runtime.overlap import apart, require_apart
from irc.runtime.packing import Packing
from irc.runtime.ports import Array, Port, ShapeCheck, SizeConstraint, SymbolicSize
from irc.runtime.repeated import RepeatedCall


class CompiledModel:
    """A compiled model.

    compiled(a, b), compiled([a, b]) or compiled({"x": a, "y": b}) give a list of arrays in the model's
    output order.  `inputs` and `outputs` say name, dtype and shape.  Calls of one object take turns
    (it has a lock); state (ReadValue, Assign) is the object's own and fresh in every copy.  Results are the caller's:
    no array shares memory with an input, another result or the model.  A forked child may go on with the object.
    """

    def __init__(self, artifact: Artifact, threads: int = 1) -> None:
        self.artifact, self.threads = artifact, threads
        if wrong := wrong_fields(artifact.manifest):
            raise storage.malformed(artifact.folder, ", ".join(wrong))
        try:
            self._describe(artifact.manifest)
        except _MALFORMED as e:
            raise storage.malformed(artifact.folder, e) from e
        try:
            self._engine: Any = self._start()
            require_unchanged(artifact)
        except RunError:
            raise
        except _MALFORMED as e:
            raise storage.malformed(artifact.folder, e) from e
        if self._packing is not None:  # the engine has tensors in the place of sequences and optional values
            self.inputs, self.outputs = self._packing.inputs, self._packing.outputs
        self._repeated: RepeatedCall | None = None
        self._turns = Turns(self.name, self._engine.has_state, waits=self.backend == "numpy")
        renew_after_fork(self)

    def _describe(self, manifest: dict[str, Any]) -> None:
        """Read what a manifest says of the model. Raises one of `_MALFORMED` if irc did not write it."""
        self.name: str = manifest["name"]
        self.backend: str = manifest["backend"]
        self.inputs = [Port.of(row) for row in manifest["inputs"]]
        self.outputs = [Port.of(row) for row in manifest["outputs"]]
        self.symbols = [SymbolicSize(**row) for row in manifest.get("symbols", [])]
        constraints = [SizeConstraint(**row) for row in manifest.get("demands", [])]
        self._check = ShapeCheck(self.inputs, self.symbols, constraints)
        self._packing = Packing.of(manifest.get("packed"))
        self._keys = _keys(self.inputs if self._packing is None else self._packing.inputs)

    def _start(self) -> Any:
        if self.backend == "numpy":
            return ModuleEngine(self.artifact)
        from irc.runtime.native import NativeEngine

        return NativeEngine(self.artifact, self.inputs, self.outputs, self.threads)

    def __repr__(self) -> str:
        ins = ", ".join(f"{p.name}: {p.type}" for p in self.inputs)
        outs = ", ".join(f"{p.name}: {p.type}" for p in self.outputs)
        return visible(f"<CompiledModel {self.name!r} ({self.backend}): {ins} -> {outs}>")

    # ------------------------------------------------------------------------ calling
    def __call__(self, *inputs: Any, out: Sequence[Array] | None = None) -> list[Any]:
        """Run the model. `out`: arrays that the results are written into, one for each output, and which are returned.

        Tensors of torch, and of what speaks DLPack, may stand for arrays: their memory is used as it is.
        Arrays of `out` may share memory with inputs, which are copied then, but not with each other.
        Raises TypeError for a wrong element type, ValueError for a wrong number, name or shape (both with
        `.diagnostics`), RunError where the model itself fails.  Nothing is ever cast.
        """
        if out is not None:
            self._run(inputs, self._shared(out))
            return list(out)
        return self._run(inputs, None)

    def _run(self, inputs: tuple[Any, ...], out: Sequence[Array] | None) -> list[Any]:
        """Run the model; into these arrays, if they are given."""
        if out is None and (repeated := self._repeated) is not None:
            with self._turns.lock:
                self._turns.require_state()
                results = repeated.run(inputs)
            if results is not None:
                return results
        arrays = self._arguments(inputs)
        if self._packing is not None:
            return self._run_packed(self._packing, arrays, out)
        dims = self._check(arrays)
        if self.backend == "numpy":
            with self._turns.lock:
                self._turns.require_state()
                results = self._engine.run(arrays)
            return results if out is None else self._copied(results, self._results(out, None))
        arrays = [a if a.flags.carray else _in_order(a) for a in arrays]
        given = None if out is None else self._results(out, dims)
        if given is not None:
            arrays = apart(arrays, given)
        with self._turns.lock:
            self._turns.require_state()
            results = self._engine.run(arrays, dims, given)
            if given is None:
                self._repeated = self._engine.repeated([p.name for p in self.inputs], arrays)
        return results

    def _shared(self, given: Sequence[Any]) -> list[Any]:
        """Take what is given for the outputs as arrays over its memory."""
        names = [p.name for p in self.outputs]
        return [shared(o, "output", n) for o, n in zip(given, names, strict=False)] + list(given[len(names) :])

    def _run_packed(self, packing: Packing, values: list[Any], out: Sequence[Array] | None) -> list[Any]:
        if out is not None:
            self._results(out, None)
        arrays = [_in_order(a) for a in packing.pack(values)]
        dims = self._check(arrays)
        with self._turns.lock:
            self._turns.require_state()
            found = packing.unpack(self._engine.run(arrays, dims, None))
        return found if out is None else self._copied(found, list(out))

    def bind(
        self, inputs: Sequence[Array] | Mapping[str, Array], outputs: Sequence[Array] | None = None
    ) -> Callable[[], list[Array]]:
        """Make a function that runs over the current contents of these buffers.

        It returns the same list of output arrays every time; they are allocated here if not given, and share the
        memory of tensors of other libraries that are.  The arrays must be C-contiguous and of the declared dtype and
        shape (TypeError, ValueError).
        """
        arrays = self._arguments((inputs,))
        outputs = None if outputs is None else self._shared(outputs)
        if self._packing is not None:
            odd = next(p for p in (*self.inputs, *self.outputs) if p.kind != "tensor")
            role = "input" if odd in self.inputs else "output"
            raise failure(codes.CANNOT_BIND, InputTypeError, role=role, name=odd.name, type=odd.type)
        dims = self._check(arrays)
        for port, array in zip(self.inputs, arrays, strict=True):
            self._bindable(port, array, "input")
        for port in self.outputs:
            if not port.is_numeric_tensor or port.max_sizes is not None:
                raise failure(codes.CANNOT_BIND, InputTypeError, role="output", name=port.name, type=port.type)
        if self.backend == "numpy":
            return self._bound_module(arrays, dims, outputs)
        made = self._allocate(dims) if outputs is None else self._results(outputs, dims)
        return self._engine.bind(arrays, apart(arrays, made), dims, made, self._turns)

    def _bound_module(
        self, arrays: list[Array], dims: tuple[int, ...], outputs: Sequence[Array] | None
    ) -> Callable[[], list[Array]]:
        if outputs is not None:
            made = self._results(outputs, dims)
        elif all(_known(p, len(dims)) for p in self.outputs):
            made = self._allocate(dims)
        else:  # a size known only at run time: take the arrays of a first run
            with self._turns.lock:
                self._turns.require_state()
                made = self._engine.run(arrays)

        def call() -> list[Array]:
            with self._turns.lock:
                self._turns.require_state()
                return self._copied(self._engine.run(arrays), made)

        return call

    def reset_state(self) -> None:
        """Set the variables of a stateful model to their initial values."""
        with self._turns.lock:
            self._engine.reset()
            self._turns.lost = False

    def before_fork(self) -> None:
        """Wait for a call that a fork would break; Python calls this."""
        self._turns.before_fork()

    def after_fork_in_parent(self) -> None:
        """Let calls go on; Python calls this."""
        self._turns.after_fork_in_parent()

    def after_fork(self) -> None:
        """Make a forked child's copy ready to run; Python calls this in the child."""
        self._engine.after_fork(self._turns.after_fork())

    def run_times(self) -> list[int]:
        """Return the times of the latest run of a model compiled for profiling, in nanoseconds; empty for other models.

        They are when the run began, when each function had returned, and when the run ended.
        """
        rows = self.artifact.manifest.get("profile")
        return [] if rows is None else self._engine.times(len(rows) + 2)

    def symbol_values(self, inputs: Sequence[Array] | Mapping[str, Array]) -> tuple[int, ...]:
        """Find the sizes that these inputs give the model's symbols, in order. Raises TypeError, ValueError."""
        values = self._arguments((inputs,))
        return self._check(values if self._packing is None else self._packing.pack(values))

    # ------------------------------------------------------------------------ storing
    def save(self, folder: str | Path) -> None:
        """Write the artefact, for `irc.load_compiled`.  Raises OSError.

        Files of an artefact that was there before are replaced or removed, not written over: who has it open keeps
        it.  Other files in the folder are left alone.
        """
        if self.copy_files(folder):
            remember_written(folder, verified=True)

    def copy_files(self, folder: str | Path) -> bool:
        """Save the files for a caller that changes the folder afterwards.

        Returns False for the artefact's own folder.
        """
        target = Path(folder)
        if target.exists() and target.samefile(self.artifact.folder):
            return False
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".irc-", dir=target) as temporary:
            for name in (*self.artifact.files, storage.MANIFEST):
                storage.copy_verified(self.artifact, self._file(name), Path(temporary, name))
            storage.remove_former(target, keep=self.artifact.files)
            for name in (*self.artifact.files, storage.MANIFEST):
                os.replace(Path(temporary, name), target / name)
        return True

    def _file(self, name: str) -> Path:
        """Return the path of a file of the artefact. Raises RunError IRC6320 if its folder has been removed."""
        path = self.artifact.path(name)
        if not path.is_file():
            reason = f"{name} has been removed since it was opened"
            raise failure(codes.NO_ARTEFACT, path=self.artifact.folder, reason=reason)
        return path

    def __reduce__(self) -> tuple[Any, ...]:
        files = {n: self._file(n).read_bytes() for n in (*self.artifact.files, storage.MANIFEST)}
        return _unpickle, (files, self.threads)

    # -------------------------------------------------------------------- arguments
    def _arguments(self, inputs: tuple[Any, ...]) -> list[Any]:
        """Put the arguments of a call into input order, checking their element types."""
        values: Sequence[Any] = inputs
        if len(inputs) == 1:
            only = inputs[0]
            if isinstance(only, Mapping) and not self._is_the_map(only):  # pyright: ignore[reportUnknownArgumentType]
                values = self._by_name(only)  # pyright: ignore[reportUnknownArgumentType]
            elif isinstance(only, list | tuple) and not self._is_the_sequence(only):  # pyright: ignore
                values = cast("Sequence[Any]", only)
        if len(values) != len(self.inputs):
            names = ", ".join(p.name for p in self.inputs) or "none"
            raise failure(codes.INPUT_COUNT, InputValueError, wanted=len(self.inputs), given=len(values), names=names)
        return [port.value(v, "input") for port, v in zip(self.inputs, values, strict=True)]

    def _is_the_map(self, given: Mapping[Any, Any]) -> bool:
        """Tell whether a mapping is the model's only input, a map, rather than inputs by their names."""
        one = len(self.inputs) == 1 and self.inputs[0].kind == "map"
        return one and not any(isinstance(value, Mapping) for value in given.values())

    def _is_the_sequence(self, given: Sequence[Any]) -> bool:
        """Tell whether a list is the model's only input, a sequence, rather than a list of inputs."""
        if len(self.inputs) != 1 or "seq(" not in self.inputs[0].type:
            return False
        return not (len(given) == 1 and (given[0] is None or isinstance(given[0], list | tuple)))

    def _by_name(self, given: Mapping[str, Any]) -> list[Any]:
        found: list[Any] = [_ABSENT] * len(self.inputs)
        names = ", ".join(p.name for p in self.inputs)
        for key, value in given.items():
            if key not in self._keys:
                raise failure(codes.UNKNOWN_INPUT, InputValueError, name=key, names=names)
            found[self._keys[key]] = value
        present = [v for v in found if v is not _ABSENT]
        if len(present) != len(found):
            missing = [p for p, v in zip(self.inputs, found, strict=True) if v is _ABSENT]
            if any(p.kind != "optional" for p in missing):
                raise failure(codes.INPUT_COUNT, InputValueError, wanted=len(found), given=len(present), names=names)
        return [None if v is _ABSENT else v for v in found]

    # ----------------------------------------------------------------------- outputs
    def _allocate(self, dims: tuple[int, ...]) -> list[Array]:
        return [p.allocate(dims) for p in self.outputs]

    def _results(self, given: Sequence[Array], dims: tuple[int, ...] | None) -> list[Array]:
        """Check arrays given for the outputs; their shapes too if `dims` are known."""
        if len(given) != len(self.outputs):
            raise failure(codes.OUTPUT_COUNT, InputValueError, wanted=len(self.outputs), given=len(given))
        for port, array in zip(self.outputs, given, strict=True):
            if not port.is_numeric_tensor or port.max_sizes is not None:
                raise failure(codes.CANNOT_BIND, InputTypeError, role="output", name=port.name, type=port.type)
            if not isinstance(array, np.ndarray) or array.dtype != port.dtype:  # pyright: ignore
                kind = str(getattr(array, "dtype", type(array).__name__))
                wanted = str(port.dtype)
                raise failure(
                    codes.INPUT_TYPE, InputTypeError, role="output", name=port.name, wanted=wanted, given=kind
                )
            self._bindable(port, array, "output")
            if not array.flags.writeable:
                raise failure(codes.OUTPUT_READ_ONLY, InputValueError, name=port.name)
            if dims is not None and _known(port, len(dims)):
                self._same_shape(port, array, port.shape_for(dims))
        require_apart(self.outputs, given)
        return list(given)

    @staticmethod
    def _same_shape(port: Port, array: Array, shape: tuple[int, ...]) -> None:
        if array.shape != shape:
            wanted, given = (str(list(s)).replace(" ", "") for s in (shape, array.shape))
            raise failure(codes.INPUT_SHAPE, InputValueError, role="output", name=port.name, wanted=wanted, given=given)

    @staticmethod
    def _bindable(port: Port, array: Any, role: str) -> None:
        if not isinstance(array, np.ndarray) or array.dtype == object:  # pyright: ignore
            raise failure(codes.CANNOT_BIND, InputTypeError, role=role, name=port.name, type=port.type)
        if not array.flags.c_contiguous or not array.flags.aligned:
            raise failure(codes.NOT_CONTIGUOUS, InputValueError, role=role, name=port.name, extra="")

    def _copied(self, results: list[Any], given: list[Array]) -> list[Array]:
        for port, result, array in zip(self.outputs, results, given, strict=True):
            self._same_shape(port, array, result.shape)
            np.copyto(array, result)
        return given


_ABSENT = object()
_MALFORMED = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    IndexError,
    SyntaxError,
    OverflowError,
    RecursionError,
    MemoryError,
)
"""Exceptions of reading a manifest that irc did not write."""


def _in_order(array: Array) -> Array:
    """Return the array, or a copy of it that is C-contiguous and aligned."""
    return array if array.flags.c_contiguous and array.flags.aligned else np.array(array, order="C")


def _keys(inputs: Sequence[Port]) -> dict[str, int]:
    """Map the names an input may be called by (its own, its tensor names, its layer's name) to its position."""
    found: dict[str, int] = {}
    ways: tuple[Callable[[Port], Sequence[str]], ...]
    ways = (lambda p: (p.name,), lambda p: p.names, lambda p: (p.layer,))
    for pick in ways:
        for i, port in enumerate(inputs):
            for name in pick(port):
                if name:
                    found.setdefault(name, i)
    return found


def _known(port: Port, symbols: int) -> bool:
    """Tell whether an output's shape follows from the inputs' sizes."""
    if port.sizes is None or not port.is_numeric_tensor or port.max_sizes is not None:
        return False
    names = {n for c in port.codes if not isinstance(c, int) for n in c.co_names if n[0] == "d" and n[1:].isdigit()}
    return all(int(n[1:]) < symbols for n in names)


def load_compiled(folder: str | Path, threads: int = 1) -> CompiledModel:
    """Open an artefact that `CompiledModel.save` or `irc compile` wrote.

    Needs neither compiler nor model.  An artefact is code: load only what you trust.  Raises RunError.
    """
    return CompiledModel(open_folder(folder), threads)


def _unpickle(files: dict[str, bytes], threads: int) -> CompiledModel:
    digest = hashlib.sha256(files[storage.MANIFEST]).hexdigest()
    return CompiledModel(storage.unpack(files, unpacked_folder(digest)), threads)
