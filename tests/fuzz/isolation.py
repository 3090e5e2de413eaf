"""Children under limits: a function is called for each item, and whatever happens to the process is an answer."""

from __future__ import annotations

import faulthandler
import json
import os
import re
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

Item = TypeVar("Item")
SECONDS, BYTES, WALL = 5.0, 1 << 30, 60.0
"""The limits of one stage of one item: processor time, memory on top of what the process has, time on the clock."""


@dataclass(frozen=True)
class Death:
    """How a child ended that should have answered: "time", "stuck", "signal 11" …; `trace` has its Python frames."""

    how: str
    trace: str


def renew_time(seconds: float = SECONDS) -> None:
    """Start the processor time of a stage; when it is over, the frames are written and the child ends."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def nothing() -> None:
    """Prepare nothing."""


def run_all(
    call: Callable[[Item], Any],
    items: Sequence[Item],
    bytes_more: int | None = BYTES,
    before: Callable[[], None] = nothing,
) -> list[Any | Death]:
    """`call(item)` for each item, in a child that is replaced when it dies; results must be JSON.

    `before` is called in each child first.  bytes_more: of memory, on top of what this process has; None: no limit.
    """
    answers: list[Any | Death] = []
    while len(answers) < len(items):
        answers += _one_child(call, items[len(answers) :], bytes_more, before)
    return answers


def _one_child(
    call: Callable[[Item], Any], items: Sequence[Item], bytes_more: int | None, before: Callable[[], None]
) -> list[Any | Death]:
    answers_in, answers_out = os.pipe()
    trace_in, trace_out = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(answers_in)
        os.close(trace_in)
        _serve(call, items, answers_out, trace_out, bytes_more, before)
    os.close(answers_out)
    os.close(trace_out)
    with os.fdopen(answers_in, "rb") as answers, os.fdopen(trace_in, "rb") as trace:
        found, stuck = _collect(answers.fileno(), pid)
        _, status = os.waitpid(pid, 0)
        if len(found) == len(items):
            return found
        how = "stuck" if stuck else _cause(status)
        return [*found, Death(how, trace.read().decode("utf-8", "replace")[:20_000])]


def _collect(stream: int, pid: int) -> tuple[list[Any], bool]:
    """The lines of the child; whether it had to be killed because none came for WALL seconds."""
    text = b""
    end = time.monotonic() + WALL
    while (left := end - time.monotonic()) > 0:
        if not select.select([stream], [], [], left)[0]:
            break
        got = os.read(stream, 1 << 16)
        if not got:
            return [json.loads(line) for line in text.splitlines()], False
        end = time.monotonic() + WALL if b"\n" in got else end
        text += got
    os.kill(pid, signal.SIGKILL)
    return [json.loads(line) for line in text.split(b"\n")[:-1]], True


def _cause(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return "time" if number == signal.SIGPROF else f"signal {number}"
    return f"exit {os.WEXITSTATUS(status)}"


def _serve(
    call: Callable[[Item], Any],
    items: Sequence[Item],
    answers: int,
    trace: int,
    bytes_more: int | None,
    before: Callable[[], None],
) -> None:
    """The child: limits, then one line of JSON an item.  Does not return."""
    status = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(trace, 2)
        faulthandler.enable(file=2)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        faulthandler.register(signal.SIGPROF, file=2, all_threads=False, chain=True)
        if bytes_more is not None:
            limit = _address_space() + bytes_more
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        before()
        for item in items:
            renew_time()
            line = json.dumps(call(item)).encode() + b"\n"
            signal.setitimer(signal.ITIMER_PROF, 0)
            os.write(answers, line)
        status = 0
    except BaseException:
        faulthandler.dump_traceback(file=2)
        import traceback

        os.write(2, traceback.format_exc().encode("utf-8", "replace"))
    finally:
        os._exit(status)


def _address_space() -> int:
    """Bytes of address space that the process has."""
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[0]) * resource.getpagesize()


_FRAME = re.compile(r'File "([^"]*)", line (\d+),? in (.*)')


def place(trace: str, innermost_first: bool = False) -> str:
    """The innermost frame of irc in a traceback (or a dump of frames, which begins with the innermost)."""
    frames = [(f, name) for f, _, name in _FRAME.findall(trace) if "/irc/" in f]
    if not frames:
        return "?"
    file, name = frames[0] if innermost_first else frames[-1]
    return f"{file[file.rindex('/irc/') + 1 :]}:{name.strip()}"
