"""Compilers, targets, building, and the thread pool."""

from __future__ import annotations

import ctypes
import os
import platform
import stat
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from irc.backends.c.files import EmitOptions, emit
from irc.diagnostics import CompileError, RunError
from irc.ir.types import f32
from irc.kernels import isa_of, plain
from irc.kernels.conv.nhwc import NhwcConvKernel
from irc.kernels.conv.problem import ConvProblem
from irc.kernels.gemm.packed import GemmKernel
from irc.loops.memory import plan
from irc.toolchain import c_compiler, caches, libraries, processor, vector_units

needs_compiler = pytest.mark.skipif(c_compiler.find_compiler() is None, reason="no C compiler")


def script(folder: Path, text: str) -> str:
    file = folder / "cc"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IEXEC)
    return str(file)


def code_of(error: pytest.ExceptionInfo[Any]) -> str:
    return error.value.diagnostics[0].code


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(c_compiler, "find_spec", lambda _: None)
    c_compiler._find.cache_clear()
    assert c_compiler.find_compiler() is None
    with pytest.raises(CompileError) as error:
        c_compiler.require_compiler()
    assert code_of(error) == "IRC6001"
    c_compiler._find.cache_clear()


def test_cc_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", script(tmp_path, 'echo "my compiler 1.0"') + " --some-flag")
    found = c_compiler.find_compiler()
    assert found is not None and found.version == "my compiler 1.0" and found.command[1] == "--some-flag"


@pytest.mark.parametrize("text", ["exit 1", "true"])
def test_cc_that_does_not_work(text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", script(tmp_path, text))
    with pytest.raises(CompileError) as error:
        c_compiler.find_compiler()
    assert code_of(error) == "IRC6002"


@needs_compiler
def test_native_features_are_here() -> None:
    compiler = c_compiler.require_compiler()
    target = c_compiler.resolve_target("native", compiler)
    assert target.features
    assert processor.missing_features(target.machine, target.features) == []
    processor.check_features("native", target.machine, target.features)


@needs_compiler
@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64 only")
def test_levels_of_x86_64() -> None:
    compiler = c_compiler.require_compiler()
    features = [set(c_compiler.resolve_target(f"x86-64-{v}", compiler).features) for v in ("v2", "v3", "v4")]
    assert features[0] < features[1] < features[2]
    assert "avx2" in features[1] - features[0] and "avx512f" in features[2] - features[1]


def test_a_missing_feature_is_an_error_not_a_crash() -> None:
    with pytest.raises(RunError) as error:
        processor.check_features("made-up", platform.machine(), ["no_such_instruction"])
    assert code_of(error) == "IRC6007" and "no_such_instruction" in str(error.value)
    with pytest.raises(RunError):
        processor.check_features("made-up", "another-machine", [])


@needs_compiler
@pytest.mark.parametrize(("name", "code"), [("x86-64-v9", "IRC6005"), ("-O0 rm", "IRC6005"), ("pdp11", "IRC6005")])
def test_unknown_targets(name: str, code: str) -> None:
    with pytest.raises(CompileError) as error:
        c_compiler.resolve_target(name, c_compiler.require_compiler())
    assert code_of(error) == code


@needs_compiler
@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64 only")
def test_target_of_another_family() -> None:
    with pytest.raises(CompileError) as error:
        c_compiler.resolve_target("aarch64", c_compiler.describe_compiler(("gcc",)))
    assert code_of(error) == "IRC6006"


@needs_compiler
def test_several_files_make_one_library(tmp_path: Path) -> None:
    tmp_path.joinpath("model.c").write_text(
        'int helper(void);\n__attribute__((visibility("default"))) int run(void) { return helper(); }\n'
    )
    tmp_path.joinpath("kernels_0.c").write_text("int helper(void);\nint helper(void) { return 42; }\n")
    tmp_path.joinpath("weights.bin").write_bytes(b"")
    library = libraries.build(tmp_path, ["model.c", "kernels_0.c", "weights.bin"])
    assert ctypes.CDLL(str(library)).run() == 42
    assert {p.name for p in tmp_path.iterdir()} == {"model.c", "kernels_0.c", "weights.bin", library.name}


@needs_compiler
def test_a_mistake_in_the_code_shows_the_message(tmp_path: Path) -> None:
    tmp_path.joinpath("model.c").write_text("int run(void) { return nonsense; }\n")
    with pytest.raises(CompileError) as error:
        libraries.build(tmp_path, ["model.c"])
    found = error.value.diagnostics[0]
    assert found.code == "IRC6003" and any("nonsense" in note for note in found.notes)
    assert [p.name for p in tmp_path.iterdir()] == ["model.c"]


@needs_compiler
def test_time_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slow = c_compiler.Compiler((script(tmp_path, "sleep 60"),), "slow")
    monkeypatch.setenv("IRC_COMPILE_TIMEOUT", "0.2")
    target = c_compiler.Target("native", platform.machine(), (), ())
    tmp_path.joinpath("model.c").touch()
    with pytest.raises(CompileError) as error:
        libraries.build(tmp_path, ["model.c"], target, slow)
    assert code_of(error) == "IRC6004"


@needs_compiler
def test_programs_with_prefixes_share_a_library(tmp_path: Path) -> None:
    from tests.backends.test_c_backend import two_layers

    files: list[str] = []
    for k in range(3):
        program = two_layers(k + 1)
        options = EmitOptions(prefix=f"m{k}", stem=f"m{k}", weights="embed")
        for name, content in emit(program, plan(program), options).items():
            tmp_path.joinpath(name).write_text(str(content))
            files.append(name)
    library = ctypes.CDLL(str(libraries.build(tmp_path, files, library="all.so", extra=["-O1"])))
    assert all(hasattr(library, f"m{k}_run") for k in range(3))


# -------------------------------------------------------------------- thread pool
BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class Pool(ctypes.Structure):
    _fields_ = (
        ("self", ctypes.c_void_p),
        ("parallel_for", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, BODY, ctypes.c_void_p)),
    )


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if c_compiler.find_compiler() is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("runtime")
    library = libraries.build_runtime(folder)
    assert libraries.build_runtime(folder) == library
    found = ctypes.CDLL(str(library))
    found.irc_rt_create.restype = ctypes.POINTER(Pool)
    return found


def threads_of_process() -> int:
    return len(os.listdir("/proc/self/task"))


def parts(pool: Any, n: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    body = BODY(lambda _, begin, end: found.append((begin, end)))
    pool.contents.parallel_for(pool.contents.self, n, body, None)
    return sorted(found)


@pytest.mark.parametrize(("threads", "n"), [(1, 5), (3, 10), (4, 2), (4, 1), (2, 0), (2, 1000), (3, 2**40)])
def test_pieces_cover_everything_once(runtime: ctypes.CDLL, threads: int, n: int) -> None:
    pool = runtime.irc_rt_create(threads)
    before = 0
    for begin, end in parts(pool, n):
        assert begin == before < end
        before = end
    assert before == n
    runtime.irc_rt_destroy(pool)


def test_a_share_is_begun_by_its_own_thread_and_finished_by_whoever_has_time(runtime: ctypes.CDLL) -> None:
    """A thread that is held up in its first piece keeps no more than that: three quarters of its share."""
    pool = runtime.irc_rt_create(2)
    here, there, done = threading.get_ident(), threading.Event(), threading.Event()
    found: list[tuple[bool, int, int]] = []

    def body(_: int, begin: int, end: int) -> None:
        found.append((threading.get_ident() == here, begin, end))
        if sum(e - b for _, b, e in found) == 64:
            done.set()
        elif threading.get_ident() != here:
            there.set()
            done.wait(20)
        elif begin == 0:
            there.wait(20)

    pool.contents.parallel_for(pool.contents.self, 64, BODY(body), None)
    runtime.irc_rt_destroy(pool)
    assert [(b, e) for mine, b, e in found if not mine] == [(32, 56)]
    own, others = [(0, 24), (24, 30), (30, 32)], [(60, 64), (58, 60), (56, 58)]
    assert [(b, e) for mine, b, e in found if mine] == own + others


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_threads_start_and_end(runtime: ctypes.CDLL) -> None:
    before = threads_of_process()
    pool = runtime.irc_rt_create(3)
    assert threads_of_process() == before + 2 and runtime.irc_rt_threads(pool) == 3
    runtime.irc_rt_destroy(pool)
    assert threads_of_process() == before
    runtime.irc_rt_destroy(runtime.irc_rt_create(1))
    runtime.irc_rt_destroy(None)


def test_a_busy_pool_runs_on_the_caller(runtime: ctypes.CDLL) -> None:
    pool = runtime.irc_rt_create(2)
    inner: list[list[tuple[int, int]]] = []
    body = BODY(lambda _, begin, end: inner.append(parts(pool, 6)))
    pool.contents.parallel_for(pool.contents.self, 2, body, None)
    assert inner == [[(0, 6)], [(0, 6)]]
    runtime.irc_rt_destroy(pool)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cannot choose a processor")
def test_threads_of_one_processor_finish_each_others_work(runtime: ctypes.CDLL) -> None:
    """Four threads with one processor: whoever runs takes what is left, also of the caller's share."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})  # of this thread, and of those that it starts
    try:
        pool = runtime.irc_rt_create(4)
        begun: list[int] = []
        body = BODY(lambda _, begin, end: begun.append(begin))
        for _ in range(50):
            time.sleep(0.002)  # they park
            pool.contents.parallel_for(pool.contents.self, 4, body, None)
        runtime.irc_rt_destroy(pool)
    finally:
        os.sched_setaffinity(0, allowed)
    assert sorted(begun) == sorted([0, 1, 2, 3] * 50)


STRESS = """#include "irc_rt.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static void add(void *arg, int64_t begin, int64_t end) {
    int *const x = arg;
    for (int64_t i = begin; i < end; ++i) x[i] += (int)i;
}
static int wrong(const irc_pool *pool, int rounds, int pause) {
    static int x[1000];
    for (int i = 0; i < 1000; ++i) x[i] = 0;
    for (int k = 0; k < rounds; ++k) {
        pool->parallel_for(pool->self, 1000, add, x);
        if (pause) nanosleep(&(struct timespec){0, 500000}, NULL);
    }
    for (int i = 0; i < 1000; ++i) if (x[i] != rounds * i) return 1;
    return 0;
}
int main(int argc, char **argv) {
    (void)argv;
    irc_pool *pool = irc_rt_create(4);
    if (!pool || wrong(pool, 2000, 0) || wrong(pool, 50, 1)) return 1;
    if (argc > 1) { /* fork, where the sanitizer allows it */
        const pid_t child = fork();
        if (child == 0) _exit(irc_rt_forked(pool) != 1 || wrong(pool, 10, 0));
        int status = 1;
        waitpid(child, &status, 0);
        if (status) return 2;
    }
    if (irc_rt_forked(pool)) return 3;
    irc_rt_destroy(pool);
    return 0;
}
"""


@needs_compiler
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_pool_under_stress(sanitizer: str, tmp_path: Path) -> None:
    folder = Path(c_compiler.__file__).parent.parent / "runtime"
    tmp_path.joinpath("main.c").write_text(STRESS)
    command = [
        "gcc",
        "-std=gnu11",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-fsanitize={sanitizer}",
        f"-I{folder}",
        "main.c",
        str(folder / "irc_rt.c"),
        "-pthread",
        "-o",
        "main",
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    given = ["./main"] if sanitizer == "thread" else ["./main", "fork"]
    done = subprocess.run(given, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_parallel_program_gives_the_same_for_any_number_of_threads(runtime: ctypes.CDLL, tmp_path: Path) -> None:
    import numpy as np

    from tests.backends.test_c_backend import expected_two_layers, two_layers
    from tests.support.c_program import Library

    program = two_layers(33, rows=32, columns=32)
    library = Library(program, tmp_path)
    assert "_part1" in str(library.files["model.c"])
    x = np.random.default_rng(7).normal(size=(33, 32)).astype(np.float32)
    (serial,) = library.run(library.context(), [x], [(33, 32)])
    np.testing.assert_allclose(serial, expected_two_layers(program, x), rtol=1e-4, atol=1e-6)
    for threads in (1, 2, 3):
        pool = runtime.irc_rt_create(threads)
        (found,) = library.run(library.context(pool=pool), [x], [(33, 32)])
        assert found.tobytes() == serial.tobytes()
        runtime.irc_rt_destroy(pool)


def test_the_compiler_begins_with_the_longest_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels before loops, since tiles are unrolled; so no processor waits at the end for a file begun last."""
    lengths = {"model.c": 3000, "model_1.c": 9000, "kernels_0.c": 100, "kernels_1.c": 200}
    for name, length in lengths.items():
        (tmp_path / name).write_text(" " * length)
    begun: list[str] = []

    def run(_compiler: object, arguments: list[str], file: str, _folder: Path, *_: object) -> None:
        begun.append(file)
        Path(arguments[arguments.index("-o") + 1]).touch()

    monkeypatch.setattr(libraries, "_run", run)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    target = c_compiler.Target("native", "x86_64", (), ())
    libraries.build(tmp_path, [*lengths], target, c_compiler.Compiler(("cc",), "cc"))
    assert begun[:-1] == ["kernels_1.c", "kernels_0.c", "model_1.c", "model.c"]


def test_second_cache_is_what_the_system_says(tmp_path: Path) -> None:
    for index, (level, size) in enumerate((("1", "32K"), ("2", "2M"), ("3", "32768K"))):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        (folder / "level").write_text(level + "\n")
        (folder / "size").write_text(size + "\n")
    assert caches.second_cache("native", tmp_path) == 2 << 20
    assert caches.second_cache("native", tmp_path / "none") == caches.second_cache("x86-64-v3") == 0


def test_multiply_adds_a_cycle_are_those_of_the_processor(tmp_path: Path) -> None:
    """Zen 4 does one vector of 512 bits a cycle, with which products of the same features cost twice as much."""
    (tmp_path / "cpuinfo").write_text("vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 97\nmodel name\t: AMD\n")
    assert vector_units.multiplied("native", tmp_path / "cpuinfo") == vector_units.multiplied("znver4") == 1
    assert vector_units.multiplied("native", tmp_path / "none") == vector_units.multiplied("x86-64-v4") == 0
    client = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 167\nflags\t\t: fpu avx512f"
    for flags, count in (("", 1), (" amx_tile avx512_fp16", 2)):  # a virtual machine may say any model
        (tmp_path / "cpuinfo").write_text(f"{client}{flags}\n")
        assert vector_units.multiplied("native", tmp_path / "cpuinfo") == count
    wide = frozenset(("avx512f", "avx512dq", "avx512bw", "avx512vl"))
    known, one = isa_of(wide, "x86_64"), isa_of(wide, "x86_64", fma=1)
    assert (known.fma, one.fma, isa_of(frozenset(("avx2", "fma")), "x86_64", fma=1).fma) == (2, 1, 2)
    problem = ConvProblem.contiguous("nhwc", plain(), 64, 64, (28, 28), (3, 3))
    cycles = [min(k.cycles(problem) for k in NhwcConvKernel.candidates(problem, isa)) for isa in (known, one)]
    assert 1.8 < cycles[1] / cycles[0] < 2.0


@pytest.mark.skipif(processor.machine() != "x86_64", reason="-march= of x86")
def test_blocks_follow_from_the_second_cache() -> None:
    """The same features with another cache: as much of A is packed at once as has room there."""
    compiler = c_compiler.require_compiler()
    texts: list[str] = []
    for name, l2 in (("skylake", 256 << 10), ("znver3", 512 << 10)):
        target = c_compiler.resolve_target(name, compiler)
        isa = isa_of(frozenset(target.features), target.machine, target.l2)
        assert (isa.name, target.l2, isa.l2) == ("avx2", l2, l2)
        kernel = GemmKernel.design(isa, f32, 512, 512, plain(), False, (6, 2))
        texts.append(kernel.source())
        assert f"{l2 * 3 // 8 // 4}" in texts[-1]
    assert texts[0] != texts[1]
    assert isa_of(frozenset(("avx2", "fma")), "x86_64").l2 == 256 << 10  # the set's own, where nothing is known


@needs_compiler
def test_vectors_are_read_from_all_over_only_where_that_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, flags = c_compiler.require_compiler(), {}
    for name, fast in (("native", True), ("native", False), ("x86-64-v3", True)):
        monkeypatch.setattr(processor, "gathers_at_full_rate", lambda fast=fast: fast)
        target = c_compiler.Target(name, "x86_64", (), ("avx2", "avx512f"))
        flags[name, fast] = c_compiler.gathers(target, compiler)
    known = c_compiler._accepted("-mtune-ctrl=use_gather", compiler)
    assert list(flags.values()) == [known, (), ()]
    assert c_compiler._accepted("-mtune-ctrl=nonsense", compiler) == ()
