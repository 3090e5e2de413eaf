"""Runs artefacts of the NumPy backend: the module, executed under a name of its own."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType, TracebackType
from typing import Any

from irc.diagnostics.codes import runtime_io as codes
from irc.diagnostics.core import RunError
from irc.files import LARGEST_TEXT, read_regular
from irc.runtime.artifact import Artifact
from irc.runtime.errors import InputValueError, OutOfMemory, failure
from irc.runtime.ownership import constants_of, given_away, kept, owners

SOURCE = "model.py"
NOT_DEFINED = (ArithmeticError, IndexError, ValueError, OSError, SyntaxError, EOFError)
"""Exceptions of Python, NumPy and Pillow for values that an operation is not defined for."""
TOO_LARGE = ("array is too big", "Maximum allowed dimension exceeded", "Maximum allowed size exceeded")
"""Beginnings of NumPy's ValueErrors for arrays that no memory could hold."""


class ModuleEngine:
    """Calls `run` of the generated module, with the variables' values where the model has state."""

    def __init__(self, artifact: Artifact) -> None:
        if SOURCE not in artifact.files:
            raise failure(codes.NO_LIBRARY, path=artifact.folder, holds=f"no {SOURCE}")
        path = artifact.path(SOURCE)
        try:
            source = read_regular(path, LARGEST_TEXT)
        except OSError as e:
            raise failure(codes.NO_LIBRARY, path=artifact.folder, holds=f"no {SOURCE} ({e.strerror})") from e
        module = ModuleType(f"irc_model_{abs(hash(str(path)))}")
        module.__file__ = str(path)
        try:
            exec(compile(source, str(path), "exec"), module.__dict__)  # not a .pyc beside it, which nobody verified
        except ModuleNotFoundError as e:
            raise failure(codes.NO_PACKAGE, user=str(path), package=e.name) from e
        except OSError as e:
            raise failure(codes.NO_LIBRARY, path=artifact.folder, holds=f"no weights.bin ({e.strerror})") from e
        self._run: Any = module.run
        self._lines = source.decode("utf-8", "replace").split("\n")
        self._by_data: dict[str, tuple[str, str]] = getattr(module, "DECIDED_BY_DATA", {})
        self._times: list[int] = getattr(module, "TIMES", [])
        self._initial: Any = getattr(module, "initial_state", None)
        self._constants = constants_of(module)
        self._kept = owners(self._constants)
        self.name = artifact.manifest["name"]
        self.reset()

    @property
    def has_state(self) -> bool:
        """Whether the model has variables."""
        return self._initial is not None

    def reset(self) -> None:
        """Set the variables to their initial values."""
        self.state = self._initial() if self._initial is not None else None

    def after_fork(self, interrupted: bool) -> None:
        """Do nothing: a call uses memory of its own, and the caller gives up its variables."""

    def times(self, count: int) -> list[int]:
        """Return the TIMES of a module for profiling, in nanoseconds."""
        return self._times[:count]

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """Compute the outputs, new arrays that share memory with nothing else."""
        given = list(arrays)
        try:
            results = self._run(given) if self._initial is None else self._run(given, self.state)
        except (RunError, KeyboardInterrupt):
            raise
        except MemoryError as e:
            raise failure(codes.NO_MEMORY, OutOfMemory, reason=str(e) or f"while running {self.name!r}") from e
        except Exception as e:  # whatever NumPy raises for values that an operation is not defined for
            raise self._failed(e) from e
        inputs = owners(arrays)
        taken = self._kept | inputs
        if self.state:
            for name, value in self.state.items():
                self.state[name] = kept(value, inputs)
            taken |= owners(self.state.values())
        return [given_away(r, taken) for r in results]

    def _failed(self, e: Exception) -> RunError:
        """Make the error to raise for an exception of the module.

        It says whether memory, the data of the run or neither is to blame.
        """
        if isinstance(e, ValueError) and str(e).startswith(TOO_LARGE):
            return failure(codes.NO_MEMORY, OutOfMemory, reason=f"{e} (running {self.name!r})")
        place = self._by_data.get(self._computed(e.__traceback__)) if isinstance(e, NOT_DEFINED) else None
        if place is None:
            return failure(codes.RUN_FAILED, model=self.name, reason=f"{type(e).__name__}: {e}")
        return failure(codes.DATA_MISFIT, InputValueError, where=place[1], op=place[0], what=str(e))

    def _computed(self, trace: TracebackType | None) -> str:
        """Name the variable of the module's `run` that was being computed: the first on the left of the line."""
        while trace is not None:
            if trace.tb_frame.f_code is self._run.__code__ and 0 < trace.tb_lineno <= len(self._lines):
                return self._lines[trace.tb_lineno - 1].strip().partition(" = ")[0].partition(",")[0]
            trace = trace.tb_next
        return ""
