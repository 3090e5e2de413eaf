"""Input arrays from `--input`, and output arrays to files."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import click

from irc.files import open_regular, replacing
from irc.ir.file_names import file_names, member_names

if TYPE_CHECKING:
    import numpy as np

    from irc.arrays import Array
    from irc.runtime.ports import Port

SYMBOL_SIZE = 2
"""What random inputs take for a symbolic dimension that nothing fixes."""
LISTED = 4
"""Inputs that a line names."""


def parse_inputs(texts: Iterable[str]) -> dict[str, str]:
    """`x=FILE` or `x=random` to sources by input name; without a name, the source is for all ("")."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, source = text.partition("=") if not os.path.exists(text) else ("", "", text)
        if equals and (not name or not source):
            raise click.BadParameter(f"{text!r} is not an input; write x=FILE.npy, x=FILE.npz or x=random")
        found[name if equals else ""] = source if equals else text
    return found


def gather(inputs: Sequence[Port], sources: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """An argument for each of a compiled model's inputs, and the names of those that are random.

    Symbolic dimensions of random inputs take the size that the arrays read from files have there.
    """
    names = {name for i in inputs for name in _names(i)}
    for name in sources:
        if name and name not in names:
            known = ", ".join(i.name for i in inputs)
            raise click.BadParameter(f"the model has no input {name!r}; it has {known}", param_hint="--input")
    feeds: dict[str, Any] = {}
    sizes: dict[str, int] = {}
    for port in inputs:
        own = next((sources[n] for n in _names(port) if n in sources), None)
        source = own or sources.get("", "random")
        if source != "random":
            array = feeds[port.name] = _read(source, port, shared=own is None)
            sizes.update({d: n for d, n in zip(port.shape or (), array.shape, strict=False) if isinstance(d, str)})
    at_random = [i for i in inputs if i.name not in feeds]
    for number, port in enumerate(at_random):
        feeds[port.name] = random_value(port, sizes, seed=number)
    return {i.name: feeds[i.name] for i in inputs}, [i.name for i in at_random]


def _names(port: Port) -> list[str]:
    return [n for n in (port.name, *port.names, port.layer) if n]


def _reason(error: Exception) -> str:
    """What the system says, without the name of the file, which the finding has."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _read(source: str, port: Port, shared: bool) -> Array:
    """The array of a .npy, or the one of a .npz that has the input's name (or is alone there)."""
    import numpy as np

    try:
        with os.fdopen(open_regular(source), "rb") as file:
            if not file.read(6).startswith((b"\x93NUMPY", b"PK")):
                raise ValueError("it is neither .npy nor .npz")
        found = np.load(source, allow_pickle=False)
    except (OSError, ValueError, zipfile.BadZipFile) as e:
        raise click.BadParameter(f"{source} cannot be read: {_reason(e)}", param_hint="--input") from e
    if not isinstance(found, np.lib.npyio.NpzFile):
        return _viewed(found, port)
    with found:
        key = next((n for n in _names(port) if n in found), None)
        if key is None and len(found.files) == 1 and not shared:
            key = found.files[0]
        if key is None:
            held = ", ".join(found.files)
            raise click.BadParameter(f"{source} has no array {port.name!r}; it has {held}", param_hint="--input")
        return _viewed(cast("Array", found[key]), port)


def _viewed(array: Array, port: Port) -> Array:
    """Files keep the narrow floats as raw bytes."""
    raw = array.dtype.kind == "V" and array.dtype.itemsize == port.dtype.itemsize
    return array.view(port.dtype) if raw else array


def random_value(port: Port, sizes: dict[str, int], seed: int = 0) -> Any:
    """A seeded array for an input, and None for an optional one.

    Floats are normal, bytes of their whole range, other integers 0 or 1, so that indices stay in range.
    `sizes` gives symbolic dimensions their size, and takes what is chosen here.
    """
    import numpy as np

    if port.kind == "optional":
        return None
    if port.kind != "tensor" or port.shape is None:
        raise click.UsageError(f"input {port.name} is {port.type}: random values cannot stand for it")
    rng = np.random.default_rng(seed)
    shape = tuple(sizes.setdefault(d, SYMBOL_SIZE) if isinstance(d, str) else d for d in port.shape)
    if port.dtype.kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    if port.dtype.kind == "O":
        return np.full(shape, "text", dtype=object)
    if port.dtype.kind in "iu":
        most = np.iinfo(port.dtype).max if port.dtype.itemsize == 1 else 1
        return np.asarray(rng.integers(0, most, shape, endpoint=True)).astype(port.dtype)
    return np.asarray(rng.standard_normal(shape)).astype(port.dtype)


def describe(dtype: Any, shape: Sequence[Any]) -> str:
    """`float32[1,3,224,224]`"""
    return f"{'string' if getattr(dtype, 'kind', '') in 'OUS' else dtype}[{','.join(map(str, shape))}]"


def described(arrays: Mapping[str, Any]) -> dict[str, str]:
    """What `describe` says of each argument by name; `absent` of an optional one without a value."""
    return {n: "absent" if a is None else describe(a.dtype, a.shape) for n, a in arrays.items()}


def listed(inputs: Mapping[str, str]) -> str:
    """Names and types in a line: a few of many."""
    parts = [f"{name} {text}" for name, text in inputs.items()]
    if len(parts) > LISTED + 1:
        parts[LISTED:] = [f"and {len(parts) - LISTED} more"]
    return ", ".join(parts) or "none"


# ------------------------------------------------------------------------------ labels
def labels(name: str, sources: Mapping[str, str]) -> Array:
    """The integers of a .npy, or of the array of that name in a .npz that inputs come from."""
    import numpy as np

    archives = [s for s in dict.fromkeys(sources.values()) if s.endswith(".npz")]
    try:
        if name.endswith(".npy"):
            return _whole(np.load(name, allow_pickle=False))
        held: list[str] = []
        for archive in archives:
            with np.load(archive, allow_pickle=False) as found:
                if name in found:
                    return _whole(found[name])
                held += found.files
    except (OSError, ValueError, zipfile.BadZipFile) as e:
        raise click.BadParameter(f"{name} cannot be read: {_reason(e)}", param_hint="--labels") from e
    known = f"the inputs' files hold {', '.join(held)}" if held else "no input comes from a .npz"
    raise click.BadParameter(f"there is no array {name!r}: {known}", param_hint="--labels")


def _whole(array: Array) -> Array:
    if array.dtype.kind not in "iu":
        raise ValueError(f"labels are integers, not {array.dtype}")
    return array


def predictions(named: Sequence[tuple[str, Any]], expected: Array) -> dict[str, Any]:
    """The predicted classes of the first output, and how many of them are the labels."""
    import numpy as np

    name, scores = named[0]
    if not _is_array(scores) or scores.ndim < 1 or scores.size == 0 or scores.shape[:-1] != expected.shape:
        shape = list(scores.shape) if _is_array(scores) else "no tensor"
        what = f"output {name} is {shape}, which has no class for each of the labels {list(expected.shape)}"
        raise click.BadParameter(what, param_hint="--labels")
    found = np.argmax(scores, axis=-1)
    said = {"output": name, "right": int((found == expected).sum()), "of": int(expected.size)}
    return said | {"predicted": found.reshape(-1).tolist(), "expected": expected.reshape(-1).tolist()}


# ----------------------------------------------------------------------------- outputs
def save(target: str, named: Iterable[tuple[str, Any]]) -> list[str]:
    """Write arrays to FILE.npz, the only one to FILE.npy, or one .npy each into a folder; the files written.

    Strings become `U` arrays.  Raises BadParameter where there are several for a .npy.

    Files and members of an archive are called like the arrays, as far as that is safe.  A file appears under its
    name, or takes the place of one that was there, only when it is complete.  OSError.
    """
    import numpy as np

    arrays = [(name, np.asarray(a, dtype="U") if a.dtype.kind == "O" else a) for name, a in _flat(named)]
    path = Path(target)
    if path.suffix == ".npz":
        with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
            for name, (_, array) in zip(member_names(name for name, _ in arrays), arrays, strict=True):
                with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                    np.lib.format.write_array(stream, array, allow_pickle=False)
        return [str(path)]
    if path.suffix == ".npy":
        if len(arrays) != 1:
            several = f"{len(arrays)} outputs do not fit into a .npy: name a folder or a .npz"
            raise click.BadParameter(several, param_hint="--output")
        with replacing(path) as file:
            np.lib.format.write_array(file, np.asarray(arrays[0][1]), allow_pickle=False)
        return [str(path)]
    path.mkdir(parents=True, exist_ok=True)
    files = [path / f"{name}.npy" for name in file_names(name for name, _ in arrays)]
    for target_file, (_, array) in zip(files, arrays, strict=True):
        with replacing(target_file) as file:
            np.save(file, array, allow_pickle=False)
    return [str(f) for f in files]


def _flat(named: Iterable[tuple[str, Any]]) -> Iterable[tuple[str, Array]]:
    """Arrays by name; a sequence's elements as name.0, name.1 …"""
    import numpy as np

    for name, value in named:
        if _is_array(value):
            yield name, np.asarray(value)
        elif isinstance(value, list):
            yield from _flat((f"{name}.{i}", v) for i, v in enumerate(cast("list[Any]", value)))
        elif isinstance(value, dict):
            numbers = {str(k): float(v) for k, v in cast("dict[Any, Any]", value).items()}
            yield name, np.asarray(json.dumps(numbers))


def _is_array(value: Any) -> TypeGuard[Array | np.generic[Any]]:
    import numpy as np

    return isinstance(value, np.ndarray | np.generic)


def summarise(name: str, value: Any) -> dict[str, Any]:
    """What is printed of an output: type, shape and a few figures."""
    import numpy as np

    if not _is_array(value):
        return {"name": name, "kind": "absent" if value is None else type(value).__name__, "length": len(value or ())}
    array = np.asarray(value)
    said: dict[str, Any] = {"name": name, "dtype": str(array.dtype), "shape": list(array.shape)}
    if array.size and array.dtype.kind not in "OUSc":
        wide = array.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        if finite.size:
            said |= {"min": float(finite.min()), "max": float(finite.max()), "mean": float(finite.mean())}
        said["nonfinite"] = int(wide.size - finite.size)
    return said
