"""Fixtures for all tests."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from instruction_sets import compiler_script

from irc.backends.processor import missing_features
from irc.backends.toolchain import find_compiler, require_compiler, resolve_target
from irc.diagnostics import CompileError

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure(config: pytest.Config) -> None:
    """With `$IRC_TEST_TARGET`, compilers on PATH build for that target what they are asked to build for this processor.

    So whatever is compiled for `native`, the default, is what another processor would get, in every process.
    """
    target = os.environ.get("IRC_TEST_TARGET")
    if not target or hasattr(config, "workerinput"):  # a worker of pytest-xdist has the environment already
        return
    try:
        found = resolve_target(target, require_compiler())
    except CompileError as e:
        raise pytest.UsageError(f"IRC_TEST_TARGET={target}: {e}") from e
    if missing := missing_features(found.machine, found.features):
        raise pytest.UsageError(f"IRC_TEST_TARGET={target}: this processor lacks {', '.join(missing)}")
    folder = Path(tempfile.mkdtemp(prefix="irc-test-target-"))
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    for name in ("gcc", "clang", "cc"):
        if real := shutil.which(name):
            compiler_script(folder, f'{real} "$@"', ("-march=native", found.flags[0]), name=name)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a C compiler, what needs one is skipped."""
    if find_compiler() is not None:
        return
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if item.get_closest_marker("compiler") or parameters.get("backend") == "c":
            item.add_marker(pytest.mark.skip(reason="no C compiler"))


@pytest.fixture(scope="session", autouse=True)
def _private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither use nor fill the user's cache of compiled models."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IRC_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def root() -> Path:
    """The checkout."""
    return ROOT
