"""A forked child runs the models of its parent, whatever other threads were doing."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import irc
from irc.runtime import cache, forks, pool
from irc.toolchain.c_compiler import find_compiler
from tests.runtime.test_ownership import STATE

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
BACKENDS = ["numpy", pytest.param("c", marks=pytest.mark.skipif(find_compiler() is None, reason="no C compiler"))]
W = np.eye(64, dtype=np.float32)


def product() -> bytes:
    """y = x · w, w the identity, for any number of rows."""
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 64]) for n in "xy"]
    made = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([made], "g", ends[:1], ends[1:], [numpy_helper.from_array(W, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()


def in_child(work: Callable[[], Any], seconds: float = 60) -> None:
    """Run this in a forked child; AssertionError where it fails there, or does not end."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    until = time.monotonic() + seconds
    while not (done := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError("the child hangs")
        time.sleep(0.005)
    assert done[1] == 0, "the child failed"


@contextmanager
def running(call: Callable[[], Any]) -> Any:
    """Another thread that calls this again and again."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            call()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_child_runs_what_a_thread_was_running(backend: str, threads: int) -> None:
    compiled = irc.compile(product(), backend=backend, threads=threads)
    large, small = np.ones((20_000, 64), np.float32), np.arange(128, dtype=np.float32).reshape(2, 64)
    bound = compiled.bind([small])

    def work() -> None:
        for n in (2, 1, 2):
            assert np.array_equal(compiled(small[:n])[0], small[:n])
        assert np.array_equal(bound()[0], small)
        in_child(lambda: np.testing.assert_array_equal(bound()[0], small))  # and its children

    with running(lambda: compiled(large)):
        for _ in range(5):
            time.sleep(0.01)
            in_child(work)
    assert np.array_equal(bound()[0], small)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_child_goes_on_with_the_state(backend: str, tmp_path: Path) -> None:
    (tmp_path / "m.xml").write_text(STATE)
    (tmp_path / "m.bin").write_bytes(np.float32([5, 6]).tobytes())
    compiled = irc.compile(tmp_path / "m.xml", backend=backend)
    compiled(np.float32([1, 2]))

    def work() -> None:
        assert compiled(np.float32([3, 4]))[0].tolist() == [1, 2]

    in_child(work)
    assert compiled(np.float32([7, 8]))[0].tolist() == [1, 2]


@pytest.mark.parametrize("backend", BACKENDS)
def test_state_that_was_changing_in_a_fork_is_not_used(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "WAIT", 0.1)
    (tmp_path / "m.xml").write_text(STATE)
    (tmp_path / "m.bin").write_bytes(np.float32([5, 6]).tobytes())
    compiled = irc.compile(tmp_path / "m.xml", backend=backend)
    x = np.float32([1, 2])
    bound = compiled.bind([x])
    bound()

    def work() -> None:
        for call in (bound, lambda: compiled(x), bound):
            with pytest.raises(irc.RunError, match="IRC6326"):
                call()
        compiled.reset_state()
        assert [bound()[0].tolist(), compiled(x)[0].tolist()] == [[5, 6], [1, 2]]

    with compiled._turns.lock:  # as a call in another thread holds it
        in_child(work)
    assert bound()[0].tolist() == [1, 2]


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
def test_a_child_has_threads_of_its_own() -> None:
    """The pool of models from before the fork has threads again: a part waits for another one."""
    compiled = irc.compile(product(), backend="c", threads=2)
    compiled(W)
    address = pool.pool_for(None, 2)
    assert address

    def met() -> None:
        face = pool._Face.from_address(pool.pool_for(None, 2))
        part = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, part, ctypes.c_void_p)(face.parallel_for)
        both = threading.Barrier(2, timeout=30)
        count: list[int] = []

        def one(_: Any, begin: int, end: int) -> None:
            if end - begin == 1:
                both.wait()
                count.append(begin)

        run(face.self, 2, part(one), None)
        assert sorted(count) == [0, 1]

    met()
    in_child(met)
    in_child(lambda: np.testing.assert_array_equal(compiled(W)[0], W))
    assert pool.pool_for(None, 2) == address


def test_locks_of_modules_are_free_in_a_child() -> None:
    with pool._pools._lock:
        in_child(lambda: pool._pools._lock.acquire(timeout=1) or os._exit(2))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_child_compiles_and_unpacks(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRC_CACHE_DIR", str(tmp_path / "cache"))
    irc.compile(product(), backend=backend)
    in_child(lambda: irc.compile(product(), backend=backend)(W), 300)
    with monkeypatch.context() as patch:
        patch.setattr(cache, "root", lambda warn=True: None)  # a temporary folder, which is the parent's
        compiled = irc.compile(product(), backend=backend)
        in_child(lambda: irc.compile(product(), backend=backend)(W), 300)
        np.testing.assert_array_equal(compiled(W)[0], W)


@pytest.mark.parametrize("backend", BACKENDS)
def test_calls_resets_binds_and_copies_at_once(backend: str) -> None:
    import pickle

    compiled = irc.compile(product(), backend=backend, threads=2)
    failed: list[BaseException] = []

    def often(work: Callable[[int], None]) -> threading.Thread:
        def run() -> None:
            try:
                for n in range(1, 30):
                    work(n)
            except BaseException as e:
                failed.append(e)

        return threading.Thread(target=run)

    def check(result: list[Any], n: int) -> None:
        assert np.array_equal(result[0], np.full((n, 64), n, np.float32))

    def given(n: int) -> np.ndarray:
        return np.full((n, 64), n, np.float32)

    workers = [often(lambda n: check(compiled(given(n)), n)) for _ in range(2)]
    workers += [often(lambda n: check(compiled.bind([given(n)])(), n)), often(lambda n: compiled.reset_state())]
    workers += [often(lambda n: check(pickle.loads(pickle.dumps(compiled))(given(n)), n) if n % 10 == 0 else None)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not failed, failed
