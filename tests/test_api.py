"""The public API: calls, errors, artefacts, pickling, cache, saving."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import irc
from irc.runtime import artifact, cache
from irc.toolchain.c_compiler import find_compiler

DIGITS = Path(__file__).resolve().parent.parent / "samples" / "digits"
BACKENDS = ["numpy", pytest.param("c", marks=pytest.mark.skipif(find_compiler() is None, reason="no C compiler"))]
W = np.arange(32, dtype=np.float32).reshape(4, 8) / 16


def model(size: Any = "n", opset: int = 17) -> onnx.ModelProto:
    """y = Gemm(x, w) · 2 − z."""
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["g"], transB=1, name="fc"),
        helper.make_node("Mul", ["g", "two"], ["m"], name="scale"),
        helper.make_node("Sub", ["m", "z"], ["y"], name="sub"),
    ]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [size, k]) for n, k in (("x", 8), ("z", 4))]
    weights = [numpy_helper.from_array(W, "w"), numpy_helper.from_array(np.float32(2), "two")]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [size, 4])]
    graph = helper.make_graph(nodes, "net", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def arrays(n: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, z and the expected y."""
    rng = np.random.default_rng(0)
    x, z = rng.integers(-4, 4, (n, 8)).astype(np.float32), rng.integers(-4, 4, (n, 4)).astype(np.float32)
    return x, z, x @ W.T * 2 - z


@pytest.fixture(scope="module", params=BACKENDS)
def compiled(request: pytest.FixtureRequest) -> Any:
    return irc.compile(model(), backend=request.param)


def test_call_styles_agree(compiled: Any) -> None:
    x, z, y = arrays()
    for results in (compiled(x, z), compiled([x, z]), compiled({"z": z, "x": x})):
        assert len(results) == 1
        np.testing.assert_array_equal(results[0], y)


def test_sizes_may_change_from_call_to_call(compiled: Any) -> None:
    for n in (1, 5, 2, 40):
        x, z, y = arrays(n)
        np.testing.assert_array_equal(compiled(x, z)[0], y)


def test_ports_say_name_dtype_and_shape(compiled: Any) -> None:
    assert [(p.name, p.dtype, p.shape) for p in compiled.inputs] == [
        ("x", np.dtype("float32"), ("n", 8)),
        ("z", np.dtype("float32"), ("n", 4)),
    ]
    assert compiled.outputs[0].shape == ("n", 4)


@pytest.mark.parametrize(
    ("given", "error", "code"),
    [
        (lambda x, z: (x.astype(np.float64), z), TypeError, "IRC6303"),
        (lambda x, z: (x[:, :7], z), ValueError, "IRC6304"),
        (lambda x, z: (x[0], z), ValueError, "IRC6304"),
        (lambda x, z: (x, z[:2]), ValueError, "IRC6305"),
        (lambda x, z: (x,), ValueError, "IRC6301"),
        (lambda x, z: ({"x": x, "y": z},), ValueError, "IRC6302"),
        (lambda x, z: ({"x": x},), ValueError, "IRC6301"),
    ],
)
def test_wrong_arguments(compiled: Any, given: Any, error: type[Exception], code: str) -> None:
    x, z, _ = arrays()
    with pytest.raises(error) as caught:
        compiled(*given(x, z))
    assert isinstance(caught.value, irc.RunError)
    assert caught.value.diagnostics[0].code == code


def test_plain_call_copies_what_is_not_contiguous(compiled: Any) -> None:
    x, z, y = arrays(4)
    np.testing.assert_array_equal(compiled(np.asfortranarray(x), z)[0], y)
    np.testing.assert_array_equal(compiled(np.repeat(x, 2, 0)[::2], z)[0], y)


def test_out_writes_into_the_arrays_given(compiled: Any) -> None:
    x, z, y = arrays()
    mine = np.full_like(y, np.nan)
    results = compiled(x, z, out=[mine])
    assert results[0] is mine
    np.testing.assert_array_equal(mine, y)
    with pytest.raises(ValueError, match="IRC6304"):
        compiled(x, z, out=[np.empty((2, 4), np.float32)])
    with pytest.raises(TypeError, match="IRC6303"):
        compiled(x, z, out=[np.empty((3, 4))])
    mine.flags.writeable = False
    with pytest.raises(ValueError, match="IRC6308"):
        compiled(x, z, out=[mine])


def test_bind_follows_the_buffers(compiled: Any) -> None:
    x, z, y = arrays()
    call = compiled.bind({"x": x, "z": z})
    first = call()
    np.testing.assert_array_equal(first[0], y)
    compiled(*arrays(7)[:2])  # another size in between
    x += 1
    second = call()
    assert second[0] is first[0]
    np.testing.assert_array_equal(second[0], x @ W.T * 2 - z)
    with pytest.raises(ValueError, match="IRC6307"):
        compiled.bind([np.asfortranarray(x), z])


def test_save_load_and_pickle(compiled: Any, tmp_path: Path) -> None:
    x, z, y = arrays()
    compiled.save(tmp_path / "build")
    manifest = json.loads((tmp_path / "build" / "manifest.json").read_text())
    assert manifest["format"] == 1
    assert set(manifest["files"]) | {"manifest.json"} == {p.name for p in (tmp_path / "build").iterdir()}
    np.testing.assert_array_equal(irc.load_compiled(tmp_path / "build")(x, z)[0], y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(compiled))(x, z)[0], y)


def test_pickle_in_another_process(compiled: Any, tmp_path: Path) -> None:
    x, z, y = arrays()
    (tmp_path / "it.pkl").write_bytes(pickle.dumps((compiled, x, z, y)))
    code = (
        "import pickle, sys, numpy as np\n"
        f"compiled, x, z, y = pickle.load(open({str(tmp_path / 'it.pkl')!r}, 'rb'))\n"
        "np.testing.assert_array_equal(compiled(x, z)[0], y)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(irc.__file__).parent.parent)


def test_damaged_artefacts_are_refused(compiled: Any, tmp_path: Path) -> None:
    compiled.save(tmp_path)
    name = next(iter(json.loads((tmp_path / "manifest.json").read_text())["files"]))
    data = bytearray((tmp_path / name).read_bytes())
    data[-1] ^= 1
    (tmp_path / name).write_bytes(data)
    with pytest.raises(irc.RunError, match="IRC6322"):
        irc.load_compiled(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": 99, "files": {}}')
    with pytest.raises(irc.RunError, match="IRC6321"):
        irc.load_compiled(tmp_path)
    with pytest.raises(irc.RunError, match="IRC6320"):
        irc.load_compiled(tmp_path / "nowhere")


def test_a_known_folder_is_not_read_again(compiled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRC_CACHE_DIR", str(tmp_path / "cache"))
    compiled.save(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")  # with new inodes: nobody knows it
    read: list[str] = []
    file_hash = artifact.file_hash

    def noticed(path: Path) -> str:
        read.append(path.parent.name)
        return file_hash(path)

    monkeypatch.setattr(artifact, "file_hash", noticed)
    monkeypatch.setattr(cache, "_SETTLED", -1e12)  # the copy need not grow old first
    for folder in ("a", "b", "b"):
        irc.load_compiled(tmp_path / folder)
    assert read == ["b"] * len(compiled.artifact.files)
    name = next(n for n in compiled.artifact.files if n.endswith((".c", ".py")))
    for folder in ("a", "b"):
        text = (tmp_path / folder / name).read_text()
        (tmp_path / folder / name).write_text(text[:-1] + " ")
        with pytest.raises(irc.RunError, match="IRC6322"):
            irc.load_compiled(tmp_path / folder)


def test_a_young_folder_is_read_again(compiled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of a file system may be too coarse to tell of a change right after a check."""
    monkeypatch.setenv("IRC_CACHE_DIR", str(tmp_path / "cache"))
    compiled.save(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b", copy_function=shutil.copyfile)
    irc.load_compiled(tmp_path / "b")
    known = (tmp_path / "cache" / "hashes.json").read_text()
    monkeypatch.setattr(cache, "_SETTLED", -1e12)
    irc.load_compiled(tmp_path / "b")
    assert (tmp_path / "cache" / "hashes.json").read_text() != known


def test_threads_may_call_one_object(compiled: Any) -> None:
    x, z, y = arrays(16)
    wrong: list[int] = []

    def work() -> None:
        for _ in range(20):
            if not np.array_equal(compiled(x, z)[0], y):
                wrong.append(1)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


def test_threads_option_gives_the_same(compiled: Any) -> None:
    x, z, y = arrays(64)
    two = irc.compile(model(), backend=compiled.backend, threads=2)
    np.testing.assert_array_equal(two(x, z)[0], y)


def test_shapes_fix_symbols() -> None:
    fixed = irc.compile(model(), backend="numpy", shapes={"x": (3, 8)})
    assert [p.shape for p in (*fixed.inputs, *fixed.outputs)] == [(3, 8), (3, 4), (3, 4)]
    x, z, y = arrays()
    np.testing.assert_array_equal(fixed(x, z)[0], y)
    for shapes, code in (({"x": (3, 9)}, "IRC6351"), ({"q": (1,)}, "IRC6302")):
        with pytest.raises(irc.CompileError) as caught:
            irc.compile(model(), backend="numpy", shapes=shapes)
        assert caught.value.diagnostics[0].code == code


def test_options_are_checked() -> None:
    for options in ({"backend": "cuda"}, {"precision": "low"}, {"threads": 0}):
        with pytest.raises(irc.CompileError, match="IRC6350"):
            irc.compile(model(), **options)


def test_names_of_inputs(tmp_path: Path) -> None:
    """A Parameter's layer name and every tensor name name it; initializers that are inputs do not."""
    proto = model()
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 8]))
    compiled = irc.compile(proto, backend="numpy")
    assert [p.name for p in compiled.inputs] == ["x", "z"]
    irc.convert(model(), tmp_path / "m.xml")
    again = irc.compile(tmp_path / "m.xml", backend="numpy")
    x, z, y = arrays()
    keys = {name for p in again.inputs for name in (p.name, p.layer, *p.names) if name}
    assert {"x", "z"} <= keys
    np.testing.assert_allclose(again({"x": x, "z": z})[0], y, rtol=1e-6)


def test_load_raises_with_every_finding(tmp_path: Path) -> None:
    proto = model()
    proto.graph.node[1].op_type = "Mull"
    proto.graph.node[2].op_type = "Subb"
    with pytest.raises(irc.InvalidModel) as caught:
        irc.load(proto)
    assert len([d for d in caught.value.diagnostics if d.severity == "error"]) == 2
    assert {d.code for d in irc.validate(proto)} >= {"IRC2001"}
    assert irc.validate(tmp_path / "nothing.onnx")[0].severity == "error"
    assert irc.validate(model()) == []
    (tmp_path / "junk.xml").write_bytes(b"\0\1\2")
    assert irc.validate(tmp_path / "junk.xml")


def test_save_picks_versions(tmp_path: Path) -> None:
    loaded = irc.load(model(opset=17))
    irc.save(loaded, tmp_path / "same.onnx")
    same = onnx.load(tmp_path / "same.onnx")
    assert (same.opset_import[0].version, same.ir_version) == (17, 8)
    irc.save(loaded, tmp_path / "older.onnx", opset=13)
    older = onnx.load(tmp_path / "older.onnx")
    assert (older.opset_import[0].version, older.ir_version) == (13, 7)
    onnx.checker.check_model(older, full_check=True)
    irc.save(loaded, tmp_path / "m.xml", for_openvino="2021.4")
    assert 'version="10"' in (tmp_path / "m.xml").read_text().splitlines()[1]
    irc.save(loaded, tmp_path / "n.xml")
    assert 'version="11"' in (tmp_path / "n.xml").read_text().splitlines()[1]
    irc.convert(tmp_path / "m.xml", tmp_path / "back.onnx")
    assert onnx.load(tmp_path / "back.onnx").opset_import[0].version == 21
    for name, options in (("a.pb", {}), ("a.onnx", {"opset": 99}), ("a.xml", {"for_openvino": "1999"})):
        with pytest.raises(irc.ConversionError, match="IRC6350"):
            irc.save(loaded, tmp_path / name, **options)
        assert not (tmp_path / name).exists()


def test_nothing_is_written_when_conversion_fails(tmp_path: Path) -> None:
    node = helper.make_node("Whatever", ["x"], ["y"], domain="example.org")
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy"]
    graph = helper.make_graph([node], "g", info[:1], info[1:])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("example.org", 1)]
    proto = helper.make_model(graph, opset_imports=imports, ir_version=8)
    if any(d.severity == "error" for d in irc.validate(proto)):
        with pytest.raises(irc.InvalidModel):
            irc.load(proto)
        return
    with pytest.raises(irc.ConversionError):
        irc.convert(proto, tmp_path / "m.xml")
    assert not list(tmp_path.iterdir())


def test_compressed_weights_are_halves(tmp_path: Path) -> None:
    irc.convert(model(), tmp_path / "m.xml", compress_fp16=True)
    assert "decompression" in (tmp_path / "m.xml").read_text()
    assert (tmp_path / "m.bin").stat().st_size < 4 * W.size
    x, z, _ = arrays()
    halved = W.astype(np.float16).astype(np.float32)
    got = irc.compile(tmp_path / "m.xml", backend="numpy")(x, z)[0]
    np.testing.assert_allclose(got, x @ halved.T * 2 - z, rtol=1e-5)


def test_weights_beyond_f16_stay_whole(tmp_path: Path) -> None:
    big = model()
    big.graph.initializer[0].CopyFrom(numpy_helper.from_array(W * 1e6, "w"))
    (lost, note) = irc.convert(big, tmp_path / "m.xml", compress_fp16=True)
    assert note.code == "IRC4008" and '"w"' in note.message
    assert lost.code == "IRC4906" and "names of sizes" in lost.message
    x, z, _ = arrays()
    got = irc.compile(tmp_path / "m.xml", backend="numpy")(x, z)[0]
    np.testing.assert_allclose(got, x @ (W * np.float32(1e6)).T * 2 - z, rtol=1e-5)


def test_import_is_light() -> None:
    """`import irc` and `load_compiled` need only NumPy and the standard library."""
    code = (
        "import sys, irc, irc.runtime.executor\n"
        "heavy = {'onnx', 'networkx', 'lxml', 'ml_dtypes', 'click', 'rich', 'google.protobuf'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert not [m for m in sys.modules if m.startswith(('irc.ir', 'irc.ops', 'irc.formats'))]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(irc.__file__).parent.parent)


def test_load_compiled_is_light(compiled: Any, tmp_path: Path) -> None:
    compiled.save(tmp_path / "a")
    code = (
        "import sys, irc, numpy as np\n"
        f"c = irc.load_compiled({str(tmp_path / 'a')!r})\n"
        "c(np.ones((2, 8), np.float32), np.ones((2, 4), np.float32))\n"
        "heavy = {'onnx', 'networkx', 'lxml', 'ml_dtypes', 'click', 'irc.ir', 'irc.ops'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(irc.__file__).parent.parent)


def test_a_hit_in_the_cache_is_light(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRC_CACHE_DIR", str(tmp_path / "cache"))
    onnx.save(model(), tmp_path / "m.onnx")
    irc.compile(tmp_path / "m.onnx")
    code = (
        "import sys, irc\n"
        f"irc.compile({str(tmp_path / 'm.onnx')!r})\n"
        "heavy = {'onnx', 'networkx', 'lxml', 'ml_dtypes', 'irc.ir.graph', 'irc.ops', 'irc.kernels', 'irc.passes'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(irc.__file__).parent.parent)


# ------------------------------------------------------------------------------ cache
def test_cache_reuses_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRC_CACHE_DIR", str(tmp_path / "cache"))
    onnx.save(model(), tmp_path / "m.onnx")
    first = irc.compile(tmp_path / "m.onnx", backend="numpy")
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
    assert irc.compile(tmp_path / "m.onnx", backend="numpy").artifact.folder == first.artifact.folder
    assert cache.info().entries == 1
    other = irc.compile(tmp_path / "m.onnx", backend="numpy", shapes={"x": (3, 8)})
    assert other.artifact.folder != first.artifact.folder
    irc.compile(tmp_path / "m.onnx", backend="numpy", cache=False)
    assert cache.info().entries == 2
    (first.artifact.folder / "model.py").write_text("")  # damaged: made again
    x, z, y = arrays()
    np.testing.assert_array_equal(irc.compile(tmp_path / "m.onnx", backend="numpy")(x, z)[0], y)
    assert cache.clear() == 2
    assert cache.info().entries == 0


def test_cache_sees_the_bounds_of_a_model_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRC_CACHE_DIR", str(tmp_path / "cache"))
    text = (DIGITS / "digits.xml").read_text()
    for name, shape in (("free", "?,1,8,8"), ("bounded", "1..2,1,8,8")):
        (tmp_path / f"{name}.xml").write_text(text.replace('shape="?,1,8,8"', f'shape="{shape}"', 1))
        shutil.copy(DIGITS / "digits.bin", tmp_path / f"{name}.bin")
    images = np.zeros((5, 1, 8, 8), np.float32)
    assert irc.compile(irc.load(tmp_path / "free.xml"), backend="numpy")(images)[0].shape == (5, 10)
    with pytest.raises(irc.RunError, match="IRC6306"):
        irc.compile(irc.load(tmp_path / "bounded.xml"), backend="numpy")(images)


def test_cache_sees_changed_external_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRC_CACHE_DIR", str(tmp_path / "cache"))
    kept = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    onnx.save(model(), tmp_path / "m.onnx", **kept)
    x, z, y = arrays()
    np.testing.assert_array_equal(irc.compile(tmp_path / "m.onnx", backend="numpy")(x, z)[0], y)
    data = np.fromfile(tmp_path / "w.bin", np.float32)
    (data * 2).tofile(tmp_path / "w.bin")
    os.utime(tmp_path / "w.bin", ns=(1, 1))
    assert not np.array_equal(irc.compile(tmp_path / "m.onnx", backend="numpy")(x, z)[0], y)


def test_cache_is_capped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("IRC_CACHE_SIZE", "1K")
    for n in (1, 2, 3):
        irc.compile(model(), backend="numpy", shapes={"x": (n, 8)})
    assert cache.info().entries == 1


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_cache_that_others_may_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("IRC_CACHE_DIR", str(shared))
    x, z, y = arrays()
    with pytest.warns(RuntimeWarning, match="IRC6330"):
        compiled = irc.compile(model(), backend="numpy")
    np.testing.assert_array_equal(compiled(x, z)[0], y)
    assert not list(shared.iterdir())


# ---------------------------------------------------------------------- onnx.backend
def test_onnx_backend_face() -> None:
    x, z, y = arrays()
    for face in (irc.backend, irc.backend.numpy):
        assert face.supports_device("CPU")
        assert not face.supports_device("CUDA")
        assert face.is_compatible(model())
    assert issubclass(irc.backend.c, onnx.backend.base.Backend)
    np.testing.assert_array_equal(irc.backend.numpy.prepare(model()).run([x, z])[0], y)
    np.testing.assert_array_equal(irc.backend.numpy.run_model(model(), [x, z])[0], y)
    node = helper.make_node("Sub", ["a", "b"], ["c"])
    np.testing.assert_array_equal(irc.backend.numpy.run_node(node, [z, z])[0], z - z)


# ------------------------------------------------------------------------------ state
@pytest.mark.parametrize("backend", BACKENDS)
def test_state_lives_in_the_object(backend: str, tmp_path: Path) -> None:
    """v starts as 5; each run adds x to it and gives 2 · v."""
    openvino = pytest.importorskip("openvino")
    from openvino import opset13 as ops

    x = ops.parameter([2, 3], np.float32, name="x")
    added = ops.add(ops.read_value(ops.constant(np.full((2, 3), 5, np.float32)), "v"), x)
    results = [ops.result(ops.multiply(added, ops.constant(np.float32(2))))]
    made = openvino.Model(results, [ops.assign(added, "v")], [x], "counter")
    openvino.save_model(made, tmp_path / "m.xml", compress_to_fp16=False)
    compiled = irc.compile(tmp_path / "m.xml", backend=backend)
    one = np.ones((2, 3), np.float32)
    assert len(compiled.inputs) == len(compiled.outputs) == 1
    assert [compiled(one)[0][0, 0] for _ in range(3)] == [12, 14, 16]
    assert pickle.loads(pickle.dumps(compiled))(one)[0][0, 0] == 12
    compiled.reset_state()
    call = compiled.bind([one])
    assert [call()[0][0, 0] for _ in range(2)] == [12, 14]


@pytest.mark.parametrize("size", [-2, 2.5, True, b"x"])
def test_sizes_that_are_none(size: Any) -> None:
    with pytest.raises(irc.CompileError, match="IRC6351"):
        irc.compile(model(), backend="numpy", shapes={"x": (size, 3)})


@pytest.mark.compiler
def test_an_empty_batch() -> None:
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2])],
        "pool",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3, 4, 4])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 3, 3, 3])],
    )
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    for backend in ("c", "numpy"):
        assert irc.compile(proto, backend=backend)(np.zeros((0, 3, 4, 4), np.float32))[0].shape == (0, 3, 3, 3)


@pytest.mark.parametrize(("kind", "suffix"), [("FLOAT8E4M3FNUZ", "xml"), ("COMPLEX64", "xml"), ("INT2", "xml")])
def test_element_types_the_other_format_lacks(kind: str, suffix: str, tmp_path: Path) -> None:
    code = getattr(onnx.TensorProto, kind)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["x"], ["y"])],
        "same",
        [onnx.helper.make_tensor_value_info("x", code, [2])],
        [onnx.helper.make_tensor_value_info("y", code, [2])],
    )
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 25)], ir_version=13)
    with pytest.raises(irc.ConversionError, match=r"IRC400[27]"):
        irc.save(irc.load(proto), tmp_path / f"same.{suffix}")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    for name in ("m.onnx", "m.xml"):
        with pytest.raises(OSError, match=f"no/{name}"):
            irc.save(irc.load(model()), tmp_path / "no" / name)


def test_a_folder_may_be_compiled_into_again(compiled: Any, tmp_path: Path) -> None:
    x, z, y = arrays()
    compiled.save(tmp_path / "a")
    first = irc.load_compiled(tmp_path / "a")
    other = model()
    other.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.float32(4), "two"))
    irc.compile(other, backend=compiled.backend).save(tmp_path / "a")
    second = irc.load_compiled(tmp_path / "a")
    assert np.array_equal(first(x, z)[0], y)
    assert np.array_equal(second(x, z)[0], 2 * y + z)


def test_a_manifest_of_something_else_is_refused(compiled: Any, tmp_path: Path) -> None:
    compiled.save(tmp_path / "a")
    path = tmp_path / "a" / "manifest.json"
    manifest = json.loads(path.read_text())
    for key in ("name", "backend", "inputs", "outputs"):
        path.write_text(json.dumps({k: v for k, v in manifest.items() if k != key}))
        with pytest.raises(irc.RunError, match="IRC6320"):
            irc.load_compiled(tmp_path / "a")
    path.write_text(json.dumps({**manifest, "inputs": [{**manifest["inputs"][0], "dtype": 7}]}))
    with pytest.raises(irc.RunError, match="IRC6320"):
        irc.load_compiled(tmp_path / "a")


def test_an_artefact_that_is_gone_is_said_so(compiled: Any, tmp_path: Path) -> None:
    x, z, y = arrays()
    compiled.save(tmp_path / "a")
    opened = irc.load_compiled(tmp_path / "a")
    shutil.rmtree(tmp_path / "a")
    assert np.array_equal(opened(x, z)[0], y)
    for keep in (pickle.dumps, lambda c: c.save(tmp_path / "b")):
        with pytest.raises(irc.RunError, match="removed since"):
            keep(opened)


def test_onnx_round_trips_keep_order_sparse_and_typed_data(tmp_path: Path) -> None:
    values = helper.make_tensor("sparse", TensorProto.FLOAT, [2], [5.0, 7.0])
    sparse = helper.make_sparse_tensor(values, helper.make_tensor("at", TensorProto.INT64, [2], [1, 5]), [2, 3])
    late, early = (helper.make_tensor(n, TensorProto.FLOAT, [3], [1.0, 2.0, 3.0]) for n in ("late", "early"))
    nodes = [helper.make_node("Add", ["x", "early"], ["a"]), helper.make_node("Add", ["a", "late"], ["b"])]
    graph = helper.make_graph(
        [*nodes, helper.make_node("Mul", ["b", "sparse"], ["y"])],
        "kept",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [late, early],
        sparse_initializer=[sparse],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    irc.save(irc.load(proto), tmp_path / "kept.onnx")
    assert onnx.load(tmp_path / "kept.onnx") == proto
    x = np.ones((2, 3), np.float32)
    assert irc.compile(proto)(x)[0].tolist() == [[0, 25, 0], [0, 0, 49]]


def test_a_missing_weights_file_is_one_finding(tmp_path: Path) -> None:
    onnx.save(model(), tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    (tmp_path / "m.data").unlink()
    found = irc.validate(tmp_path / "m.onnx")
    assert {d.code for d in found} == {"IRC1463"}


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
def test_an_unknown_rank_is_no_internal_error(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "xy")
    made = helper.make_model(helper.make_graph([node], "g", [x], [y]), ir_version=8)
    with pytest.raises(irc.CompileError) as error:
        irc.compile(made, backend="c").save(tmp_path)
    assert {d.code for d in error.value.diagnostics} == {"IRC5003"}
    (found,) = irc.compile(made, backend="c", shapes={"x": (2, 3)})(np.full((2, 3), -1, np.float32))
    np.testing.assert_array_equal(found, 0)


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
def test_sizes_that_do_not_fit_name_both_inputs(tmp_path: Path) -> None:
    node = helper.make_node("Add", ["x", "z"], ["y"], name="join")
    x, z = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [s, 4]) for n, s in (("x", "n"), ("z", "m")))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    made = helper.make_model(helper.make_graph([node], "g", [x, z], [y]), ir_version=8)
    irc.compile(made, backend="c").save(tmp_path)
    again = irc.load_compiled(tmp_path)
    for n, m in ((3, 3), (1, 3), (3, 1)):
        assert again(np.ones((n, 4), np.float32), np.ones((m, 4), np.float32))[0].shape == (3, 4)
    facts = r"IRC6313: Add: .* n = 3 \(axis 0 of 'x'\), m = 5 \(axis 0 of 'z'\) \(IRC3101\) .*join"
    with pytest.raises(ValueError, match=facts):
        again(np.ones((3, 4), np.float32), np.ones((5, 4), np.float32))
