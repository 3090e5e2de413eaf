"""Files that a model names stay in its folder and are what they were when they were checked; nothing waits for them."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import irc
from irc import driver, files
from irc.diagnostics import Problem
from irc.runtime import content

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links, FIFOs and modes are POSIX's")
SHAPE = [2, 64]  # more elements than are known when a model is read
W = np.arange(128, dtype=np.float32).reshape(SHAPE)
ZERO = np.zeros(SHAPE, np.float32)
X = helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)
Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)


def model(*weights: onnx.TensorProto) -> onnx.ModelProto:
    """y = x + w, summed over all weights."""
    names = [w.name for w in weights]
    nodes = [helper.make_node("Sum", ["x", *names], ["y"])]
    graph = helper.make_graph(nodes, "g", [X], [Y], list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def external(name: str = "w", **entries: object) -> onnx.TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=SHAPE, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def onnx_model(folder: Path, **entries: object) -> Path:
    """A model of one external tensor, w.bin by default, which is written."""
    folder.mkdir(exist_ok=True)
    (folder / "w.bin").write_bytes(W.tobytes())
    path = folder / "m.onnx"
    path.write_bytes(model(external(**({"location": "w.bin"} | entries))).SerializeToString())
    return path


def ir(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    irc.convert(model(numpy_helper.from_array(W, "w")), folder / "m.xml")
    return folder / "m.xml"


def data_of(path: Path) -> Path:
    return path.with_name("w.bin") if path.suffix == ".onnx" else path.with_suffix(".bin")


def codes(source: Any) -> list[str]:
    return [d.code for d in irc.validate(source) if d.severity == "error"]


def result(path: Path) -> list[list[float]]:
    return irc.compile(path, backend="numpy")(ZERO)[0].tolist()


@pytest.fixture(params=[onnx_model, ir])
def make(request: pytest.FixtureRequest) -> Callable[[Path], Path]:
    return request.param


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all files that are opened for reading."""
    seen: list[str] = []
    real = os.open

    def noticed(path: Any, flags: int, *more: Any, **named: Any) -> int:
        seen.append(os.fspath(path))
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", noticed)
    return seen


# ------------------------------------------------------------------ what is no regular file
def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def listening(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's path is short
    try:
        socket.socket(socket.AF_UNIX).bind(path.name)
    finally:
        os.chdir(here)


def folder(path: Path) -> None:
    path.mkdir()


def loop(path: Path) -> None:
    path.symlink_to(path.name)


ODD = [fifo, device, listening, folder, loop]


@pytest.mark.parametrize("odd", ODD)
def test_weights_that_are_no_regular_file(odd: Callable[[Path], None], make: Any, tmp_path: Path) -> None:
    path = make(tmp_path / "m")
    data_of(path).unlink()
    odd(data_of(path))
    wanted = {".onnx": "IRC1463", ".xml": "IRC1083"} if odd is not device else {".onnx": "IRC1462", ".xml": "IRC1084"}
    assert codes(path) == [wanted[path.suffix]]
    with pytest.raises(irc.InvalidModel):
        irc.compile(path, backend="numpy")


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("ending", [".onnx", ".xml"])
def test_models_that_are_no_regular_file(odd: Callable[[Path], None], ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"m{ending}"
    odd(path)
    assert codes(path) == [{".onnx": "IRC1401", ".xml": "IRC1001"}[ending]]
    with pytest.raises(irc.InvalidModel):
        irc.compile(path, backend="numpy")


def test_inputs_that_are_no_regular_file(tmp_path: Path) -> None:
    ir(tmp_path / "m")
    os.mkfifo(tmp_path / "x.npy")
    command = [sys.executable, "-m", "irc", "run", "m/m.xml", "--backend", "numpy", "--input", "x=x.npy"]
    root = Path(irc.__file__).parent.parent
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2 and "not a regular file but a FIFO" in done.stderr


# ---------------------------------------------------------------------- what is outside
@pytest.mark.parametrize(
    "location",
    ["/etc/passwd", "../secret", "a/../../secret", "\\secret", "..\\secret", "C:/secret", "link", "up/secret", "a\0b"],
)
def test_nothing_outside_is_opened(location: str, tmp_path: Path, opened: list[str]) -> None:
    (tmp_path / "secret").write_bytes(bytes(64))
    path = onnx_model(tmp_path / "m", location=location)
    (tmp_path / "m/a").mkdir()
    (tmp_path / "m/link").symlink_to("../secret")
    (tmp_path / "m/up").symlink_to("..")
    with pytest.raises(irc.InvalidModel) as error:
        irc.compile(path, backend="numpy")
    assert [d.code for d in error.value.diagnostics] == ["IRC1462"]
    assert not [n for n in opened if "secret" in n or "passwd" in n or "link" in n]


def test_a_location_that_is_too_long(tmp_path: Path) -> None:
    assert codes(onnx_model(tmp_path / "m", location="w" * 100_000)) == ["IRC1463"]


def test_a_bin_that_leads_out_of_the_folder(tmp_path: Path, opened: list[str]) -> None:
    path = ir(tmp_path / "m")
    path.with_suffix(".bin").rename(tmp_path / "secret")
    path.with_suffix(".bin").symlink_to("../secret")
    assert codes(path) == ["IRC1084"]
    with pytest.raises(irc.InvalidModel, match="IRC1084"):
        irc.compile(path, backend="numpy")
    assert not [n for n in opened if "secret" in n]


def test_folders_that_links_may_lead_to(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path / "m")
    (tmp_path / "store").mkdir()
    data_of(path).rename(tmp_path / "store/w")
    data_of(path).symlink_to(tmp_path / "store/w")
    assert codes(path)
    monkeypatch.setenv("IRC_DATA_FOLDERS", os.pathsep.join(["/nowhere", str(tmp_path / "store")]))
    assert codes(path) == [] and result(path) == W.tolist()


def test_links_that_stay_inside_and_hard_links(make: Any, tmp_path: Path) -> None:
    path = make(tmp_path / "m")
    data = data_of(path)
    data.rename(data.with_name("real"))
    data.symlink_to("real")
    assert codes(path) == [] and result(path) == W.tolist()
    data.unlink()
    (tmp_path / "elsewhere").write_bytes(data.with_name("real").read_bytes())
    data.hardlink_to(tmp_path / "elsewhere")
    assert codes(path) == [] and result(path) == W.tolist()


def test_a_model_in_a_store_of_blobs(make: Any, tmp_path: Path) -> None:
    """As download caches keep models: every file of a snapshot is a link into one folder of blobs."""
    made = make(tmp_path / "made")
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots/main"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for number, file in enumerate((made, data_of(made))):
        file.rename(blobs / str(number))
        (snapshot / file.name).symlink_to(Path("../../blobs", str(number)))
    assert codes(snapshot / made.name) == [] and result(snapshot / made.name) == W.tolist()


def test_a_link_to_a_model_finds_what_is_beside_the_model(make: Any, tmp_path: Path) -> None:
    made = make(tmp_path / "m")
    link = tmp_path / f"latest{made.suffix}"
    link.symlink_to(made)
    assert codes(link) == [] and result(link) == W.tolist()


def test_what_is_put_in_a_files_place_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that appears between the look and the opening."""
    path = onnx_model(tmp_path / "m")
    (tmp_path / "secret").write_bytes(bytes(64))
    real = os.path.realpath

    def swapped(name: Any, **named: Any) -> str:
        found = real(name, **named)
        if str(name).endswith("w.bin") and not (tmp_path / "m/w.bin").is_symlink():
            (tmp_path / "m/w.bin").unlink()
            (tmp_path / "m/w.bin").symlink_to(tmp_path / "secret")
        return found

    monkeypatch.setattr(files.os.path, "realpath", swapped)
    assert codes(path) == ["IRC1463"]


def test_external_data_of_bodies_and_functions_are_confined_too(tmp_path: Path) -> None:
    body = helper.make_graph([helper.make_node("Identity", ["w"], ["b"])], "b", [], [Y], [external(location="../w")])
    body.output[0].name = "b"
    constant = helper.make_node("Constant", [], ["f"])
    constant.attribute.append(helper.make_attribute("value", external("", location="/etc/passwd")))
    function = helper.make_function("d", "F", ["a"], ["f"], [constant], [helper.make_opsetid("", 18)])
    nodes = [
        helper.make_node("If", ["c"], ["t"], then_branch=body, else_branch=body),
        helper.make_node("F", ["x"], ["u"], domain="d"),
        helper.make_node("Sum", ["t", "u"], ["y"]),
    ]
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("d", 1)]
    graph = helper.make_graph(nodes, "g", [X, condition], [Y])
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=[function])
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    found = [d for d in irc.validate(tmp_path / "m.onnx") if d.code == "IRC1462"]
    assert {n for d in found for n in ("../w", "/etc/passwd") if n in d.message} == {"../w", "/etc/passwd"}


def test_bytes_have_no_folder() -> None:
    assert codes(model(external(location="w.bin")).SerializeToString()) == ["IRC1461"]


# -------------------------------------------------------------------------- ranges and sizes
@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ({"offset": 2**63 - 1}, "IRC1464"),
        ({"offset": 2**64}, "IRC1465"),
        ({"offset": "-0"}, "IRC1465"),
        ({"offset": "١"}, "IRC1465"),
        ({"offset": 4}, "IRC1464"),
        ({"length": 2**63 - 1}, "IRC1464"),
    ],
)
def test_ranges_that_are_not_there(entries: dict[str, object], code: str, tmp_path: Path) -> None:
    path = onnx_model(tmp_path / "m", **entries)
    assert codes(path) == [code]
    with pytest.raises(irc.InvalidModel):
        irc.compile(path, backend="numpy")


def test_tensors_that_share_bytes(tmp_path: Path) -> None:
    path = onnx_model(tmp_path / "m")
    (tmp_path / "m/w.bin").write_bytes(np.arange(132, dtype=np.float32).tobytes())
    parts = [external(f"w{k}", location="w.bin", offset=k * 4) for k in range(5)]
    path.write_bytes(model(*parts).SerializeToString())
    want = sum(np.arange(k, k + 128, dtype=np.float32) for k in range(5)).reshape(SHAPE)
    assert result(path) == want.tolist()


def test_shared_bytes_take_memory_once(tmp_path: Path) -> None:
    path = onnx_model(tmp_path / "m")
    path.write_bytes(model(*(external(f"w{k}", location="w.bin") for k in range(50))).SerializeToString())
    loaded = irc.load(path)
    arrays = [v.const.array for v in loaded.graph.nodes[0].inputs if v is not None and v.const is not None]
    assert len(arrays) == 50 and all(np.shares_memory(arrays[0], a) for a in arrays)


@pytest.mark.parametrize("size", [1 << 40, 1 << 34])
def test_a_sparse_file_is_not_read(size: int, make: Any, tmp_path: Path) -> None:
    """A terabyte of which 512 bytes are the model's."""
    path = make(tmp_path / "m")
    os.truncate(data_of(path), size)
    assert codes(path) == [] and result(path) == W.tolist()


def test_a_sparse_model_is_refused_unread(tmp_path: Path) -> None:
    for name, code in (("m.onnx", "IRC1407"), ("m.xml", "IRC1001")):
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, 1 << 40)
        assert codes(tmp_path / name) == [code]
        assert content.source_hash(tmp_path / name) is None


def test_more_data_files_than_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "KEPT_OPEN", 2)
    path = onnx_model(tmp_path / "m")
    for k in range(5):
        (tmp_path / f"m/{k}").write_bytes((W * k).tobytes())
    path.write_bytes(model(*(external(f"w{k}", location=str(k)) for k in range(5))).SerializeToString())
    gc.collect()  # files of earlier tests
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    loaded = irc.load(path)
    if before is not None:
        assert len(os.listdir("/proc/self/fd")) == before + 2
    compiled = irc.compile(loaded, backend="numpy", cache=False)
    assert compiled(ZERO)[0].tolist() == (10 * W).tolist()
    again = irc.load(path)
    (tmp_path / "m/4").unlink()  # not open any more
    (tmp_path / "m/4").write_bytes(W.tobytes())
    with pytest.raises(irc.CompileError, match="IRC1085"):
        irc.compile(again, backend="numpy", cache=False)


# ------------------------------------------------------------------ files that change meanwhile
@pytest.mark.parametrize("kept_whole", [0, 1 << 20])
def test_weights_cut_short_after_loading(
    kept_whole: int, make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was the end of the process: a mapping has no bytes beyond the end of its file."""
    monkeypatch.setattr(files, "KEPT_WHOLE", kept_whole)
    path = make(tmp_path / "m")
    loaded = irc.load(path)
    os.truncate(data_of(path), 4)
    with pytest.raises(irc.CompileError, match="IRC1085"):
        irc.compile(loaded, backend="numpy")
    for target in ("again.onnx", "again.xml"):
        with pytest.raises(irc.ConversionError, match="IRC1085"):
            irc.save(loaded, tmp_path / target)
    assert not list(tmp_path.glob("again*")) and not list(tmp_path.glob(".*"))


def test_weights_written_over_after_loading(make: Any, tmp_path: Path) -> None:
    path = make(tmp_path / "m")
    loaded = irc.load(path)
    with open(data_of(path), "r+b") as file:
        file.write(bytes(32))
    os.utime(data_of(path), ns=(1, 1))
    with pytest.raises(irc.CompileError, match="IRC1085"):
        irc.compile(loaded, backend="numpy")


def test_arrays_that_were_read_outlive_the_file(make: Any, tmp_path: Path) -> None:
    path = make(tmp_path / "m")
    loaded = irc.load(path)
    (array,) = [v.const.array for n in loaded.graph.nodes for v in n.inputs if v is not None and v.const is not None]
    os.truncate(data_of(path), 0)
    assert array.tolist() == W.tolist() and not array.flags.writeable


def test_a_model_may_be_saved_over_itself(make: Any, tmp_path: Path) -> None:
    path = make(tmp_path / "m")
    loaded = irc.load(path)
    irc.save(loaded, path)
    irc.save(loaded, tmp_path / "again.onnx")
    assert result(path) == result(tmp_path / "again.onnx") == W.tolist()


def test_a_model_that_changes_while_it_is_compiled_is_not_kept(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRC_CACHE_DIR", str(tmp_path / "cache"))
    path = make(tmp_path / "m")
    load = driver.load

    def changed_first(source: Any) -> Any:
        if source is path:
            data_of(path).write_bytes((W + 1).tobytes())
        return load(source)

    monkeypatch.setattr(driver, "load", changed_first)
    assert result(path) == (W + 1).tolist()
    monkeypatch.setattr(driver, "load", load)
    data_of(path).write_bytes(W.tobytes())
    assert result(path) == W.tolist()


def test_the_cache_sees_weights_of_functions_and_bodies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRC_CACHE_DIR", str(tmp_path / "cache"))
    constant = helper.make_node("Constant", [], ["k"])
    constant.attribute.append(helper.make_attribute("value", external("", location="w.bin")))
    add = helper.make_node("Add", ["a", "k"], ["b"])
    function = helper.make_function("d", "F", ["a"], ["b"], [constant, add], [helper.make_opsetid("", 18)])
    graph = helper.make_graph([helper.make_node("F", ["x"], ["y"], domain="d")], "g", [X], [Y])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("d", 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=[function])
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    for k in (1, 2):
        (tmp_path / "w.bin").write_bytes((W * k).tobytes())
        assert result(tmp_path / "m.onnx") == (W * k).tolist()


# --------------------------------------------------------------------------- what is written
def test_temporary_names_cannot_be_foreseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that another user expects may be a link of theirs already."""
    names = {files.temporary_name(tmp_path / "m.xml").name for _ in range(20)}
    assert len(names) == 20
    taken = tmp_path / "taken"
    taken.symlink_to(tmp_path / "victim")
    monkeypatch.setattr(files, "temporary_name", lambda target: taken)
    with pytest.raises(FileExistsError):
        irc.save(irc.load(model(numpy_helper.from_array(W, "w"))), tmp_path / "m.onnx")
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("ending", [".onnx", ".xml"])
def test_a_full_disk_leaves_the_old_files(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = irc.load(model(numpy_helper.from_array(W, "w")))
    path = tmp_path / f"m{ending}"
    irc.save(loaded, path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    command = (
        "import resource, signal, sys, irc\n"
        "m = irc.load(sys.argv[1])\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))\n"
        "try:\n    irc.save(m, sys.argv[1], compress_fp16=True)\n"
        "except OSError as e:\n    sys.exit(7)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(irc.__file__).parent.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", command, str(path)], env=environment, check=False, timeout=120)
    assert done.returncode == 7
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_an_xml_that_cannot_be_replaced_leaves_the_bin(tmp_path: Path) -> None:
    loaded = irc.load(model(numpy_helper.from_array(W, "w")))
    (tmp_path / "m.bin").write_bytes(b"old")
    (tmp_path / "m.xml").mkdir()
    with pytest.raises(IsADirectoryError):
        irc.save(loaded, tmp_path / "m.xml")
    assert (tmp_path / "m.bin").read_bytes() == b"old"


def test_written_files_have_the_modes_of_new_files(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        irc.save(irc.load(model(numpy_helper.from_array(W, "w"))), tmp_path / "m.xml")
    finally:
        os.umask(before)
    assert {p.stat().st_mode & 0o777 for p in tmp_path.iterdir()} == {0o640}


def test_threads_may_save_to_one_name(tmp_path: Path) -> None:
    loaded = irc.load(model(numpy_helper.from_array(W, "w")))
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(10):
                irc.save(loaded, tmp_path / "m.xml")
        except BaseException as e:
            failed.append(e)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not failed and sorted(p.name for p in tmp_path.iterdir()) == ["m.bin", "m.xml"]
    assert result(tmp_path / "m.xml") == W.tolist()


def test_a_problem_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(bytes(8))
    file = files.DataFolder(tmp_path / "m.onnx").file("w")
    os.truncate(tmp_path / "w", 4)
    with pytest.raises(Problem, match="w has changed since the model was read"):
        file.read(0, 8)


# ------------------------------------------------------------------------- several files at once
def test_files_get_their_names_together_or_not_at_all(tmp_path: Path) -> None:
    """The second target is a folder by the time the first has its name."""
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"old {name}")
    pairs = [(tmp_path / f"{name}.new", tmp_path / name) for name in ("c", "a", "b")]
    for file, _ in pairs:
        file.write_text("new")
    (tmp_path / "b").unlink()
    (tmp_path / "b" / "inside").mkdir(parents=True)
    with pytest.raises(OSError):
        files.rename_all(pairs)
    assert (tmp_path / "a").read_text() == "old a"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b", "b.new"]
    (tmp_path / "a.new").write_text("new")
    files.rename_all(pairs[1:2])
    assert (tmp_path / "a").read_text() == "new"
