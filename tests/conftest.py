"""Fixtures for all tests."""

from __future__ import annotations

import compileall
import gc
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from irc.diagnostics import CompileError
from irc.runtime import native
from irc.toolchain import processor
from irc.toolchain.c_compiler import describe_compiler, find_compiler, require_compiler, resolve_target
from irc.toolchain.processor import missing_features
from tests.support import foreign, random_numbers
from tests.support.instruction_sets import compiler_script, features_under_test

ROOT = Path(__file__).resolve().parent.parent
_DONE = pytest.StashKey[int]()
"""How many tests a process has run."""


def pytest_configure(config: pytest.Config) -> None:
    """Prepare what all processes of a run share: irc's bytecode, and compilers.

    With `$IRC_TEST_TARGET`, compilers on PATH build for that target what they are asked to build for this processor.
    So whatever is compiled for `native`, the default, is what another processor would get, in every process.
    """
    if hasattr(config, "workerinput"):  # a worker of pytest-xdist has the environment and the bytecode already
        return
    if sys.dont_write_bytecode:  # else every worker and every command of irc's compiles the modules again, for a second
        compileall.compile_dir(ROOT / "irc", quiet=2)
    target = os.environ.get("IRC_TEST_TARGET")
    if not target:
        return
    folder = Path(tempfile.mkdtemp(prefix="irc-test-target-"))
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    try:
        put_before_path(folder, target)
    except CompileError as e:
        raise pytest.UsageError(f"IRC_TEST_TARGET={target}: {e}") from e


def put_before_path(folder: Path, target: str) -> None:
    """Compilers that take `native` for this target, which is one of this machine or one that it emulates."""
    os.environ["IRC_TEST_MACHINE"] = other = foreign.machine_of(target)
    commands = {name: (name,) for name in ("gcc", "clang", "cc")}
    if other:
        commands = dict.fromkeys(("gcc", "cc"), foreign.COMPILERS[other])
        if missing := [c[0] for c in (commands["gcc"], foreign.EMULATORS[other]) if not shutil.which(c[0])]:
            raise pytest.UsageError(f"IRC_TEST_TARGET={target}: needs {' and '.join(missing)}")
    found = resolve_target(target, describe_compiler(commands["gcc"]) if other else require_compiler())
    if not other and (missing := missing_features(found.machine, found.features)):
        raise pytest.UsageError(f"IRC_TEST_TARGET={target}: this processor lacks {', '.join(missing)}")
    for name, (program, *flags) in commands.items():
        if real := shutil.which(program):
            command = shlex.join([real, *flags])
            compiler_script(folder, f'{command} "$@"', ("-march=native", found.flags[0]), name=name)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture(scope="session", autouse=True)
def _other_machine() -> Iterator[None]:
    """Where code of another machine is tested, irc takes this one for it, and its libraries run in the emulator."""
    with pytest.MonkeyPatch.context() as patch:
        if other := foreign.machine():
            patch.setattr(processor, "machine", lambda: other)
            patch.setattr(processor, "cpu_features", features_under_test)
            patch.setattr(native, "NativeEngine", foreign.GuestEngine)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a C compiler, what needs one is skipped.  The files beside this one, among them the longest tests, come
    first: at the end a worker would wait for the one that has the last of them.
    """
    items.sort(key=lambda item: item.path.parent != ROOT / "tests")
    if find_compiler() is not None:
        return
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if item.get_closest_marker("compiler") or parameters.get("backend") == "c":
            item.add_marker(pytest.mark.skip(reason="no C compiler"))


def pytest_collection_finish() -> None:
    """Modules and tests stay: Python's collector need not go through them again, whenever a test has it look."""
    _set_aside()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Nor need it go through what tests leave in caches, which becomes as much again: some tests have it look often."""
    done = item.session.stash.setdefault(_DONE, 0) + 1
    item.session.stash[_DONE] = done
    if done % 250 == 0 or (nextitem is not None and nextitem.path != item.path):
        _set_aside()


def _set_aside() -> None:
    """Exempt all that is in use now from the collector's rounds."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither use nor fill the user's cache of compiled models."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IRC_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """A test draws the same random numbers, whichever tests ran before it."""
    random_numbers.restart()


@pytest.fixture
def root() -> Path:
    """The checkout."""
    return ROOT
