"""What is loaded from the cache or a folder is verified, is in its folder, and nobody else could have put it there."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import irc
from irc.runtime import artifact, cache, executor, module_engine, native
from irc.runtime.ports import size_code
from irc.toolchain.c_compiler import find_compiler

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links, FIFOs and modes are POSIX's")
BACKENDS = ["numpy", pytest.param("c", marks=pytest.mark.skipif(find_compiler() is None, reason="no C compiler"))]
SHAPE = (40, 200)
W = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
x = np.random.default_rng(1).standard_normal((3, 40)).astype(np.float32)


def model() -> bytes:
    """y = x · w."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 40])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 200])]
    graph = helper.make_graph([node], "g", inputs, outputs, [numpy_helper.from_array(W, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()


def right(compiled: irc.CompiledModel) -> bool:
    return np.allclose(compiled(x)[0], x @ W, atol=1e-4)


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("IRC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module", params=BACKENDS)
def compiled(request: pytest.FixtureRequest) -> irc.CompiledModel:
    return irc.compile(model(), backend=request.param)


def code_of(compiled: irc.CompiledModel) -> str:
    return compiled.artifact.manifest.get("library", "model.py")


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def with_old_times(path: Path) -> None:
    times = path.stat()
    zeroed(path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def halved(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


# ------------------------------------------------------------------------------- the cache
@pytest.mark.parametrize("damage", [zeroed, flipped, with_old_times, halved, fifo, Path.unlink])
@pytest.mark.parametrize("known", [False, True], ids=["unknown", "known"])
def test_a_damaged_entry_of_the_cache_is_made_again(
    damage: Callable[[Path], None], known: bool, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights of zeros computed wrong results."""
    first = irc.compile(model(), backend="numpy")
    if known:
        monkeypatch.setattr(cache, "_SETTLED", -1e12)  # it need not grow old first
        assert irc.compile(model(), backend="numpy").artifact.folder == first.artifact.folder
    for name in ("weights.bin", "model.py", "manifest.json"):
        damage(first.artifact.path(name))
        again = irc.compile(model(), backend="numpy")
        assert right(again) and again.artifact.folder == first.artifact.folder
        assert artifact.read_artifact(again.artifact.folder)


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
def test_a_damaged_library_in_the_cache_is_made_again(empty_cache: Path) -> None:
    """Half a library ended the process."""
    code = (
        "import sys, numpy as np, irc\n"
        "c = irc.compile(sys.argv[1], backend='c', threads=2)\n"
        "np.testing.assert_allclose(c(np.load(sys.argv[2]))[0], np.load(sys.argv[3]), atol=1e-4)\n"
        "print(c.artifact.folder)\n"
    )
    folder = empty_cache.parent
    (folder / "m.onnx").write_bytes(model())
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", x @ W)

    def run() -> Path:
        command = [sys.executable, "-c", code, *(str(folder / n) for n in ("m.onnx", "x.npy", "y.npy"))]
        environment = {**os.environ, "PYTHONPATH": str(Path(irc.__file__).parent.parent)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        return Path(done.stdout.strip())

    made = run()
    for library in [*made.glob("*.so"), *(empty_cache / "runtime").glob("*.so")]:
        halved(library)
    assert run() == made


def test_a_known_entry_of_the_cache_is_not_read_again(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_SETTLED", -1e12)
    first = irc.compile(model(), backend="numpy")
    read: list[Path] = []
    file_hash = artifact.file_hash
    monkeypatch.setattr(artifact, "file_hash", lambda path: read.append(path) or file_hash(path))
    for count in (len(first.artifact.files), 0, 0):
        read.clear()
        irc.compile(model(), backend="numpy")
        assert len(read) == count


def test_use_keeps_an_entry_in_the_cache(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [irc.compile(model(), backend="numpy", shapes={"x": (n, 40)}).artifact.folder for n in (1, 2, 3)]
    for age, folder in enumerate(entries):
        os.utime(folder, (1000 + age, 1000 + age))
    irc.compile(model(), backend="numpy", shapes={"x": (1, 40)})
    monkeypatch.setenv("IRC_CACHE_SIZE", str(cache.info().bytes - 1))
    cache.shrink(empty_cache, keep=entries[2])
    assert [f.exists() for f in entries] == [True, False, True]


def test_what_an_ended_process_left_is_removed(empty_cache: Path) -> None:
    irc.compile(model(), backend="numpy")
    for name, age in ((".irc-old", 2 * 86_400), (".irc-new", 60)):
        (empty_cache / "artefacts" / name).mkdir()
        os.utime(empty_cache / "artefacts" / name, (time.time() - age,) * 2)
    irc.compile(model(), backend="numpy", shapes={"x": (1, 40)})
    assert [(empty_cache / "artefacts" / n).exists() for n in (".irc-old", ".irc-new")] == [False, True]


@pytest.mark.parametrize("name", ["artefacts", "unpacked", "tuned", "runtime"])
@pytest.mark.parametrize("what", ["writable", "link", "file"])
def test_folders_in_the_cache_that_others_may_fill(name: str, what: str, empty_cache: Path) -> None:
    irc.compile(model(), backend="numpy")
    cache._warn.cache_clear()
    folder = empty_cache / name
    if folder.exists():
        folder.rename(empty_cache / "before")
    if what == "writable":
        folder.mkdir()
        folder.chmod(0o777)
    elif what == "link":
        (empty_cache.parent / "elsewhere").mkdir()
        folder.symlink_to(empty_cache.parent / "elsewhere")
    else:
        folder.touch()
    with pytest.warns(RuntimeWarning, match=f"IRC6330.*{name}"):
        assert right(irc.compile(model(), backend="numpy"))
    assert what == "file" or not list(folder.iterdir())


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can make files of others")
@pytest.mark.parametrize("place", ["", "artefacts", "unpacked"])
def test_folders_of_somebody_else(place: str, empty_cache: Path) -> None:
    irc.compile(model(), backend="numpy")
    cache._warn.cache_clear()
    (empty_cache / place).mkdir(exist_ok=True)
    os.chown(empty_cache / place, 12345, -1)
    with pytest.warns(RuntimeWarning, match="IRC6330.*belongs to another user"):
        assert right(irc.compile(model(), backend="numpy"))


def test_entries_of_the_cache_are_private(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_SETTLED", -1e12)
    before = os.umask(0)
    try:
        irc.compile(model(), backend="numpy")
        made = irc.compile(model(), backend="numpy").artifact.folder
    finally:
        os.umask(before)
    assert made.stat().st_mode & 0o777 == made.parent.stat().st_mode & 0o777 == 0o700
    assert (empty_cache / "hashes.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"a": ', b"\xff\xfe", b"[]", b"9" * 100_000])
def test_a_damaged_memory_of_hashes(content: bytes, empty_cache: Path) -> None:
    irc.compile(model(), backend="numpy")
    (empty_cache / "hashes.json").write_bytes(content)
    assert right(irc.compile(model(), backend="numpy"))


# ----------------------------------------------------------------------------- the manifest
def changed(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def renamed(new: str) -> Callable[[dict[str, Any]], object]:
    def change(manifest: dict[str, Any]) -> None:
        manifest["files"][new] = manifest["files"].pop(next(iter(manifest["files"])))

    return change


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "..", ".", "", "a\\b", "a\0b", "x/../../y"])
def test_a_manifest_that_names_files_elsewhere(name: str, compiled: irc.CompiledModel, tmp_path: Path) -> None:
    compiled.save(tmp_path / "a")
    changed(tmp_path / "a", renamed(name))
    with pytest.raises(irc.RunError, match="IRC6324"):
        irc.load_compiled(tmp_path / "a")
    (tmp_path / "secret").write_text("mine")
    compiled.save(tmp_path / "a")  # over it: what the old manifest names is not removed
    assert (tmp_path / "secret").read_text() == "mine" and right(irc.load_compiled(tmp_path / "a"))


def test_a_library_or_module_elsewhere(compiled: irc.CompiledModel, tmp_path: Path) -> None:
    name = code_of(compiled)
    compiled.save(tmp_path / "a")
    shutil.move(tmp_path / "a" / name, tmp_path / name)
    (tmp_path / "a" / name).symlink_to(tmp_path / name)
    with pytest.raises(irc.RunError, match="IRC6324"):
        irc.load_compiled(tmp_path / "a")
    (tmp_path / "a" / name).unlink()
    changed(tmp_path / "a", lambda m: m["files"].pop(name))
    if compiled.backend == "c":
        changed(tmp_path / "a", lambda m: m.update(library=f"../{name}"))
    with pytest.raises(irc.RunError, match="IRC6323"):
        irc.load_compiled(tmp_path / "a")


def test_bytecode_beside_a_module_is_not_run(tmp_path: Path) -> None:
    """Python takes a .pyc for a source of the same time and size; no manifest names it."""
    import importlib.util
    import py_compile

    compiled = irc.compile(model(), backend="numpy")
    compiled.save(tmp_path / "a")
    source = tmp_path / "a/model.py"
    (tmp_path / "evil.py").write_text("raise SystemExit('this was run')\n")
    planted = importlib.util.cache_from_source(str(source))
    py_compile.compile(
        str(tmp_path / "evil.py"), planted, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    assert right(irc.load_compiled(tmp_path / "a"))


VALUES: list[Any] = [None, 7, -1, "x", [], {}, [[]], [1], {"a": 1}, True, 1e400, 2**70, "d0**d0**d0", [[None]]]
VALUES += ["(" * 5000, "-" * 5000 + "1", "+".join(["d0"] * 30_000), "1" * 5000]


REFUSED = ("IRC6320", "IRC6321", "IRC6322", "IRC6323", "IRC6324", "IRC6007", "IRC6312")


@pytest.mark.parametrize("value", VALUES, ids=lambda v: str(v)[:12])
def test_a_manifest_with_other_values(value: Any, compiled: irc.CompiledModel, tmp_path: Path) -> None:
    """Every field of the manifest in turn: an artefact that loads, or a RunError."""
    compiled.save(tmp_path / "a")
    good = json.loads((tmp_path / "a/manifest.json").read_text())
    wrong: list[str] = []
    for path in paths_in(good):
        manifest = json.loads(json.dumps(good))
        holder: Any = manifest
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = value
        (tmp_path / "a/manifest.json").write_text(json.dumps(manifest))
        try:
            irc.load_compiled(tmp_path / "a")
        except irc.RunError as e:
            assert e.diagnostics[0].code in REFUSED
        except Exception as e:  # any other
            wrong.append(f"{'.'.join(map(str, path))}: {type(e).__name__}: {e}")
    assert not wrong, "\n".join(wrong)


def paths_in(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all fields, at any depth."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    return [p for k in keys for p in [(*before, k), *paths_in(value[k], (*before, k))]]


NO_MANIFESTS = [b"[" * 200_000, b'{"format": 1, "files": 1}', b"9" * 10_000, b'"x"', b"", b"\xed\xa0"]


@pytest.mark.parametrize("text", NO_MANIFESTS, ids=lambda t: str(t[:12]))
def test_a_manifest_that_is_none(text: bytes, compiled: irc.CompiledModel, tmp_path: Path) -> None:
    compiled.save(tmp_path / "a")
    (tmp_path / "a/manifest.json").write_bytes(text)
    with pytest.raises(irc.RunError, match="IRC6320"):
        irc.load_compiled(tmp_path / "a")


def test_a_manifest_that_is_a_fifo_or_endless(compiled: irc.CompiledModel, tmp_path: Path) -> None:
    compiled.save(tmp_path / "a")
    os.truncate(tmp_path / "a/manifest.json", 1 << 40)
    with pytest.raises(irc.RunError, match="IRC6320"):
        irc.load_compiled(tmp_path / "a")
    fifo(tmp_path / "a/manifest.json")
    with pytest.raises(irc.RunError, match="IRC6320"):
        irc.load_compiled(tmp_path / "a")


NO_SIZES = ["d0**d1", "9**9**9", "d0//0", "__import__('os')", "d0.x", "d0 d1", "(" * 500, "", "d;e", "1+" * 80_000]


@pytest.mark.parametrize("text", NO_SIZES, ids=lambda t: t[:12])
def test_sizes_that_are_no_expressions(text: str) -> None:
    with pytest.raises((ValueError, SyntaxError)):
        size_code(text)


@pytest.mark.parametrize("sizes", [(), (0,), (3, 0, 5), (8, 8), (3, 29, 1, 7, 40, 2), (17,)])
def test_files_are_written_in_blocks(sizes: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifact, "BLOCK", 8)
    pieces = [np.full(n, k, np.uint8).data for k, n in enumerate(sizes, 1)]
    blocks = [len(block) for block in artifact._blocks(pieces)]
    assert all(n and n % 8 == 0 for n in blocks[:-1]) and blocks[-1] < 8
    found = artifact.write_file(tmp_path / "w", pieces)
    content = (tmp_path / "w").read_bytes()
    assert content == b"".join(pieces) and found == hashlib.sha256(content).hexdigest()


# -------------------------------------------------------------------- what changes meanwhile
@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("copied", [0, 1 << 24], ids=["mapped", "copied"])
def test_weights_cut_short_after_opening(copied: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was the end of the process: what is mapped and not there any more cannot be read."""
    monkeypatch.setattr(native, "COPIED", copied)
    irc.compile(model(), backend="c").save(tmp_path / "a")
    opened = irc.load_compiled(tmp_path / "a")
    bound = opened.bind([x])
    assert right(opened)
    os.truncate(tmp_path / "a/weights.bin", 0)
    if copied:
        assert right(opened) and np.allclose(bound()[0], x @ W, atol=1e-4)
    else:
        for call in (lambda: opened(x), bound):
            with pytest.raises(irc.RunError, match=r"IRC6322.*cut short"):
                call()


def test_numpy_weights_cut_short_after_opening(tmp_path: Path) -> None:
    irc.compile(model(), backend="numpy").save(tmp_path / "a")
    opened = irc.load_compiled(tmp_path / "a")
    os.truncate(tmp_path / "a/weights.bin", 0)
    assert right(opened)


def test_an_artefact_that_is_replaced_while_it_is_opened(
    compiled: irc.CompiledModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest of one and the weights of another would compute something else without a word."""
    compiled.save(tmp_path / "a")
    start = executor.CompiledModel._start

    def replaced(self: irc.CompiledModel) -> Any:
        zeroed(self.artifact.path("weights.bin"))
        return start(self)

    monkeypatch.setattr(executor.CompiledModel, "_start", replaced)
    with pytest.raises(irc.RunError, match=r"IRC6322.*changed while it was opened"):
        irc.load_compiled(tmp_path / "a")


def test_a_damaged_artefact_is_not_saved_again(compiled: irc.CompiledModel, tmp_path: Path) -> None:
    compiled.save(tmp_path / "a")
    opened = irc.load_compiled(tmp_path / "a")
    zeroed(tmp_path / "a/weights.bin")
    with pytest.raises(irc.RunError, match="IRC6322"):
        opened.save(tmp_path / "b")
    assert not list((tmp_path / "b").iterdir())


def test_a_module_without_weights(tmp_path: Path) -> None:
    irc.compile(model(), backend="numpy").save(tmp_path / "a")
    found = artifact.read_artifact(tmp_path / "a")
    (tmp_path / "a/weights.bin").unlink()
    with pytest.raises(irc.RunError, match="IRC6323"):
        module_engine.ModuleEngine(found)


def test_data_are_written_while_the_rest_is_made(tmp_path: Path) -> None:
    """The compiler waits for no weights; an error of either leaves nothing behind."""
    begun = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield b"weights, "
        assert begun.wait(60), "nothing else was begun"
        yield b"in pieces"

    def finish(folder: Path) -> list[str]:
        assert (folder / "model.c").read_text() == "text"
        begun.set()
        (folder / "model.so").write_bytes(b"code")
        return ["model.so"]

    made = artifact.write_artifact(
        tmp_path / "a", artifact.Draft({"weights.bin": pieces(), "model.c": "text"}, {}, finish)
    )
    for name, content in (("weights.bin", b"weights, in pieces"), ("model.c", b"text"), ("model.so", b"code")):
        row = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        assert made.path(name).read_bytes() == content and made.files[name] == row

    def full() -> Iterator[bytes]:
        yield b"weights"
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        artifact.write_artifact(tmp_path / "b", artifact.Draft({"weights.bin": full(), "model.c": "text"}, {}, finish))
    assert os.listdir(tmp_path) == ["a"]
