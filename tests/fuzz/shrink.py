"""Smaller files that break the same promise: parts are left out as long as they are not missed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from google.protobuf.message import Message
from lxml import etree
from onnx import ModelProto

Files = dict[str, bytes]


def shrink(files: Files, fails: Callable[[Files], bool], tries: int = 300) -> Files:
    """The files with as little in the model as still fails, found within that many tries."""
    name = next(iter(files))
    again = True
    while again and tries > 0:
        again = False
        candidates = fewer_messages(files[name]) if name.endswith(".onnx") else fewer_elements(files[name])
        for candidate in candidates:
            tries -= 1
            if tries <= 0:
                break
            if len(candidate) < len(files[name]) and fails({**files, name: candidate}):
                files, again = {**files, name: candidate}, True
                break
    return files


def fewer_messages(data: bytes) -> Iterator[bytes]:
    """The ONNX file without an element of a list or a field, the largest parts first."""
    try:
        model = ModelProto.FromString(data)
    except Exception:  # of the decoder: nothing to take apart
        return
    for path in sorted(paths(model), key=len):
        twin = ModelProto.FromString(data)
        target: Message = twin
        for field, index in path[:-1]:
            inner = getattr(target, field)
            target = inner if index is None else inner[index]
        field, index = path[-1]
        if index is None:
            target.ClearField(field)
        else:
            del getattr(target, field)[index]
        yield twin.SerializeToString()


Path = tuple[tuple[str, int | None], ...]


def paths(message: Message, before: Path = ()) -> Iterator[Path]:
    """Where everything is that can be left out."""
    if len(before) > 6:
        return
    for field, value in message.ListFields():
        items = list(enumerate(value)) if field.is_repeated else [(None, value)]
        for index, inner in items[-40:]:
            here = (*before, (field.name, index))
            yield here
            if field.message_type is not None:
                yield from paths(inner, here)


def fewer_elements(data: bytes) -> Iterator[bytes]:
    """The document without an element, or without an attribute."""
    try:
        count = sum(1 for _ in etree.fromstring(data).iter())
    except (etree.XMLSyntaxError, ValueError, LookupError):
        return
    for n in range(count - 1, 0, -1):
        root = etree.fromstring(data)
        element = list(root.iter())[n]
        element.getparent().remove(element)
        yield etree.tostring(root)
    for n in range(count):
        for key in list(list(etree.fromstring(data).iter())[n].attrib):
            root = etree.fromstring(data)
            del list(root.iter())[n].attrib[key]
            yield etree.tostring(root)
