"""What irc may do with a file, whatever is in it: promises that are checked for a mutant in a child process.

validate never raises and finds no error of irc's own (IRC9xxx); its findings can be rendered
load raises InvalidModel exactly where validate finds an error
a valid model compiles for NumPy, or is refused by a CompileError
C is written of a valid model, or it is refused by a CompileError; `irc info` describes it
a compiled model runs on inputs of its declared types, or says by one of DATA_CODES what does not fit
a valid model converts to each format, or is refused (4xxx); what was written is valid
each stage takes less than 5 s and 1 GB; only files in the model's folder are opened
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import irc
from irc.cli import main
from irc.diagnostics.codes.runtime_io import NO_MEMORY
from irc.diagnostics.render import render_github, render_json, render_sarif, render_text
from irc.driver import CompileOptions, sources
from irc.ir.types import TensorType
from tests.fuzz.isolation import Death, place, renew_time, run_all

DATA_CODES = frozenset({"IRC6304", "IRC6305", "IRC6306", "IRC6313", "IRC6312", "IRC6317"})
"""What a run may end in because of sizes and values that only the inputs show."""
LARGEST_RUN = 1 << 18
"""Elements of all values of a model up to which it is run: beyond, seconds and gigabytes are the model's own."""


@dataclass(frozen=True)
class Finding:
    """A broken promise: the stage, what kind, the place in irc (a bucket's name), and everything known."""

    stage: str
    kind: str
    place: str
    detail: str

    @property
    def bucket(self) -> str:
        return f"{self.stage}: {self.kind} @ {self.place}"


@dataclass
class Report:
    """What became of a file: findings, and the codes and operations that say whether it is a new kind of file."""

    findings: list[Finding]
    features: list[str] = field(default_factory=list[str])
    errors: list[str] = field(default_factory=list[str])


def examine_all(models: list[Path]) -> list[Report]:
    """A report for each file, in children under limits."""
    reports: list[Report] = []
    with tempfile.TemporaryDirectory(prefix="irc-fuzz-") as folder:
        scratch = Path(folder).resolve()
        answers = run_all(lambda path: asdict(examine(path, scratch)), models, before=lambda: settle(scratch))
    for answer in answers:
        if isinstance(answer, Death):
            where = place(answer.trace, innermost_first=answer.how != "exit 1")
            reports.append(Report([Finding("process", answer.how, where, answer.trace)]))
        else:
            found = [Finding(**f) for f in answer["findings"]]
            reports.append(Report(found, answer["features"], answer["errors"]))
    return reports


def settle(scratch: Path) -> None:
    """Let a child have its temporary files and its cache in a folder of their own."""
    tempfile.tempdir = str(scratch)
    os.environ |= {"IRC_CACHE_DIR": str(scratch / "cache"), "IRC_TRACEBACK": "1"}


def examine(path: Path, scratch: Path) -> Report:
    """All promises for one file; to be called in a child that is settled, where its stages are timed."""
    report = Report([])
    with opened_files() as opened, tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_file(path, Path(folder), report)
        allowed = (*ALLOWED, str(path.parent.resolve()), str(path.parent), str(scratch))
        for name in opened:
            if not name.startswith(allowed):
                report.findings.append(Finding("files", "opened", name, name))
    return report


def check_file(path: Path, folder: Path, report: Report) -> None:
    """validate → render → load → info → C → compile → run → convert, as far as the file gets."""
    found = stage(report, "validate", lambda: irc.validate(path))
    if found is None:
        return
    report.features += sorted({d.code for d in found})
    stage(report, "render", lambda: render_everything(found))
    errors = [d for d in found if d.severity == "error"]
    report.errors = sorted({d.code for d in errors})
    model = stage(report, "load", lambda: irc.load(path), allowed=irc.InvalidModel)
    if model is None or errors:
        if bool(errors) != (model is None) and not report.findings:
            said = errors[0].code if errors else "nothing"
            report.findings.append(Finding("load", "disagrees", f"validate says {said}", str(errors[:1])))
        return
    report.features += sorted({n.op.name for n in model.graph.nodes})
    stage(report, "info", lambda: info(path))
    stage(report, "C", lambda: sources(model, CompileOptions(backend="c")), allowed=irc.CompileError)
    compiled = stage(
        report, "compile", lambda: irc.compile(path, backend="numpy", cache=False), allowed=irc.CompileError
    )
    if compiled is not None and modest(model):
        stage(report, "run", lambda: run(compiled, sizes_of_data(model, compiled)), allowed=irc.RunError)
    for suffix in (".onnx", ".xml"):
        written = folder / f"converted{suffix}"
        stage(report, f"save {suffix}", partial(irc.save, model, written), allowed=irc.ConversionError)
        if written.exists():
            check_written(written, report)


def check_written(written: Path, report: Report) -> None:
    again = stage(report, f"validate written {written.suffix}", lambda: irc.validate(written)) or []
    wrong = [d for d in again if d.severity == "error" and not d.code.startswith("IRC9")]
    if wrong:
        report.findings.append(Finding(f"save {written.suffix}", "invalid", wrong[0].code, str(wrong[0])))


def stage(report: Report, name: str, call: Callable[[], Any], allowed: type[Exception] | tuple[()] = ()) -> Any:
    """The result of a stage, or None; exceptions and findings that should not be are noted."""
    renew_time()
    printed = io.StringIO()
    result = None
    try:
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(None):
            result = call()
    except irc.IrcError as e:
        if not isinstance(e, allowed):
            report.findings.append(of_exception(name, e))
        report.findings += [f for d in e.diagnostics if (f := judged(name, d, e, printed.getvalue()))]
        report.features += [f"{name} {d.code}" for d in e.diagnostics]
    except Exception as e:
        report.findings.append(of_exception(name, e))
    else:
        if isinstance(result, list):
            report.findings += [f for d in result if (f := judged(name, d, None, printed.getvalue()))]
    return result


def judged(name: str, d: Any, error: Exception | None, printed: str) -> Finding | None:
    """What is wrong about a diagnostic: irc's own errors, failures of NumPy, refusals of the wrong kind."""
    if not isinstance(d, irc.Diagnostic) or d.severity != "error":
        return None
    if d.code.startswith("IRC9"):
        last = [line for line in printed.splitlines() if line and not line.startswith(" ")]
        return Finding(name, plain(last[-1] if last else d.message), place(printed), f"{d}\n{printed}")
    if name == "run" and d.code not in DATA_CODES:
        cause = error.__cause__ if error else None
        trace = "".join(traceback.format_exception(cause)) if cause else ""
        return Finding(name, d.code, plain(d.message.split("reason")[-1]), f"{d}\n{trace}")
    if name.startswith("save") and not d.code.startswith("IRC4"):
        return Finding(name, "refused", d.code, str(d))
    return None


def of_exception(name: str, error: Exception) -> Finding:
    trace = "".join(traceback.format_exception(error))
    return Finding(name, plain(f"{type(error).__name__}: {error}"), place(trace), trace)


def plain(text: str) -> str:
    """A message without its numbers and names, so that equal mistakes are one bucket."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "'…'", text)
    return re.sub(r"-?\d+", "N", text)[:90]


def info(path: Path) -> None:
    """The command; what it prints of itself is the cause of a status other than 0."""
    if (status := main(["info", str(path)])) != 0:
        raise RuntimeError(f"status {status}")


def render_everything(found: list[Any]) -> None:
    for render in (render_text, render_json, render_sarif, render_github):
        render(found[:40])


# ----------------------------------------------------------------------------------- running
def modest(model: Any) -> bool:
    """Whether every value's size is known for small symbols is known, and all together are few elements."""
    total = 0
    for value in model.graph.values():
        if not isinstance(value.type, TensorType) or value.type.shape is None:
            return False
        elements = value.type.elements()
        total += elements.evaluate({s.name: 4 for s in elements.symbols()})
    return total <= LARGEST_RUN


def sizes_of_data(model: Any, compiled: Any) -> bool:
    """Whether there are sizes that only running tells: these are as large as the data say."""
    known = {s.name for s in compiled.symbols}
    return any(s.name not in known for v in model.graph.values() for s in symbols(v.type))


def symbols(type: Any) -> set[Any]:
    return set(type.elements().symbols()) if isinstance(type, TensorType) else set()


def run(compiled: Any, may_be_large: bool) -> list[Any] | None:
    """A run with small sizes; None where an input is no tensor, or memory is short where sizes `may_be_large`."""
    rng = np.random.default_rng(0)
    draw = Random(0)
    if any(p.kind != "tensor" or p.shape is None for p in compiled.inputs):
        return None
    sizes = {s.name: clamp(draw.choice((2, 2, 1, 3)), s) for s in compiled.symbols}
    arrays = [declared(p, sizes, rng) for p in compiled.inputs]
    try:
        return compiled(arrays)
    except irc.RunError as e:
        if may_be_large and e.diagnostics[0].code == NO_MEMORY.id:
            return None
        raise


def clamp(size: int, symbol: Any) -> int:
    return max(size, symbol.lo) if symbol.hi is None else min(max(size, symbol.lo), symbol.hi)


def declared(port: Any, sizes: dict[str, int], rng: np.random.Generator) -> Any:
    """An array of the port's type: floats in [-2, 2), integers 0 (an index that is nearly always valid)."""
    shape = [s if isinstance(s, int) else sizes.get(s, 2) for s in port.shape]
    if port.dtype == object:
        return np.full(shape, "a", object)
    if port.dtype.kind in "biu" or port.dtype.name in ("int4", "uint4", "int2", "uint2"):
        return np.zeros(shape, port.dtype)
    return rng.uniform(-2, 2, shape).astype(port.dtype)


# ------------------------------------------------------------------------------------- files
OWN = (Path(irc.__file__).resolve().parent, Path(__file__).resolve().parent, sys.prefix, sys.base_prefix)
ALLOWED = (*map(str, OWN), "/proc/self", "/dev/null", "/dev/urandom")
_opened: list[str] | None = None
_hooked = False


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _opened is not None and isinstance(arguments[0], str | bytes):
        name = os.fsdecode(arguments[0])
        if os.path.isabs(name) or ".." in name.split(os.sep):  # else beneath a folder that was opened by its own name
            _opened.append(os.path.abspath(name))


@contextlib.contextmanager
def opened_files() -> Generator[list[str]]:
    """The paths that Python opens meanwhile."""
    global _opened, _hooked  # noqa: PLW0603  an audit hook cannot be removed, so there is one a process
    if not _hooked:
        sys.addaudithook(_note)
        _hooked = True
    _opened = found = []
    try:
        yield found
    finally:
        _opened = None
