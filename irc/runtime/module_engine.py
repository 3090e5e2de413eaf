"""Runs an artefact of the NumPy backend: its module, imported under a name of its own."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from typing import Any

from irc.diagnostics.codes import runtime_io as codes
from irc.diagnostics.core import RunError
from irc.runtime.artifact import Artifact
from irc.runtime.errors import OutOfMemory, failure


class ModuleEngine:
    """Calls `run` of the generated module, with the variables' values where the model has state."""

    def __init__(self, artifact: Artifact) -> None:
        path = artifact.path("model.py")
        name = f"irc_model_{abs(hash(str(path)))}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise failure(codes.NO_LIBRARY, path=artifact.folder, holds="no model.py")
        module = importlib.util.module_from_spec(spec)
        written, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # the artefact's folder stays as it is
        try:
            spec.loader.exec_module(module)
        finally:
            sys.dont_write_bytecode = written
        self._run: Any = module.run
        self._times: list[int] = getattr(module, "TIMES", [])
        self._initial: Any = getattr(module, "initial_state", None)
        self.name = artifact.manifest["name"]
        self.reset()

    def reset(self) -> None:
        """Variables as they are at the start."""
        self.state = self._initial() if self._initial is not None else None

    def times(self, count: int) -> list[int]:
        """The TIMES of a module for profiling, in nanoseconds."""
        return self._times[:count]

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """The outputs, new arrays."""
        try:
            if self._initial is not None:
                return self._run(list(arrays), self.state)
            return self._run(list(arrays))
        except (RunError, KeyboardInterrupt):
            raise
        except MemoryError as e:
            raise failure(codes.NO_MEMORY, OutOfMemory, reason=str(e) or f"while running {self.name!r}") from e
        except Exception as e:  # whatever NumPy raises for values an operation is not defined for
            raise failure(codes.RUN_FAILED, model=self.name, reason=f"{type(e).__name__}: {e}") from e
