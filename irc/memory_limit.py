"""C within a given memory: each step gives up speed for it, and the first that is enough is taken."""

from __future__ import annotations

from collections.abc import Callable

from irc.diagnostics import CompileError, Sink
from irc.diagnostics.codes import lowering
from irc.diagnostics.core import Loc
from irc.kernels.core import choices
from irc.runtime.artifact import Draft

STEPS = (choices.LowMemory.THREADS, choices.LowMemory.COPIES, choices.LowMemory.KERNELS)


def within(most: int, generate: Callable[[], Draft]) -> Draft:
    """Generate sources whose context has at most so many bytes: without threads, copies of operands, kernels at last.

    CompileError: IRC5012 where none has, IRC5013 where inputs decide.
    """
    sink, needs = Sink(), list[int]()
    for step in (None, *STEPS):
        if step is None:
            draft = generate()
        else:
            with choices.using(choices.LowMemory(step)):
                draft = generate()
        need = draft.manifest["memory"]["context_bytes"]
        if need is None:
            sink.report(lowering.RAM_UNKNOWN, Loc(), limit=most, arena=draft.manifest["arena_bytes"])
            break
        if need <= most:
            return draft
        needs.append(need)
    else:
        sink.report(lowering.TOO_LITTLE_RAM, Loc(), need=min(needs), limit=most, excess=min(needs) - most)
    raise CompileError(sink.diagnostics)
