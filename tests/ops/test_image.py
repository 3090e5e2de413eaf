"""ImageDecoder in both backends: sizes that only files tell, what is no image, a machine without Pillow."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest

import irc
from irc.backends.numpy import source
from irc.ir.dim import Dim
from irc.ir.graph import Graph, Model
from irc.ir.types import TensorType, f32, u8
from irc.opdef.builder import Builder
from irc.runtime.errors import InputValueError
from tests.support.images import by_pillow, encoded, image

BACKENDS = ("numpy", pytest.param("c", marks=pytest.mark.compiler))


def model(pixel_format: str = "RGB") -> Model:
    """A model that decodes an image, and takes it from pixels to planes of numbers from 0 to 1."""
    graph = Graph("decode")
    x = graph.add_input("x", TensorType.of(u8, [Dim.symbol("n")]))
    b = Builder(graph)
    pixels = b.ImageDecoder(x, pixel_format=pixel_format)
    planes = b.Div(b.Cast(b.Transpose(pixels, [2, 0, 1]), to=f32), b.const(255.0, f32))
    graph.outputs += [pixels, planes]
    return Model(graph, "onnx", 10, {"": 20})


@cache
def compiled(backend: str, pixel_format: str = "RGB") -> Any:
    return irc.compile(model(pixel_format), backend=backend)


def bytes_of(file: bytes) -> list[np.ndarray[Any, Any]]:
    return [np.frombuffer(file, np.uint8)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_images_of_any_size(backend: str) -> None:
    run = compiled(backend)
    for height, width in ((5, 9), (1, 1), (70, 3), (2, 90), (64, 64)):
        file = encoded(image(height, width), "PPM")
        pixels, planes = run(bytes_of(file))
        want = by_pillow(file)
        np.testing.assert_array_equal(pixels, want)
        np.testing.assert_array_equal(planes, want.transpose(2, 0, 1).astype(np.float32) / np.float32(255))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("order", ["BGR", "Grayscale"])
def test_orders_of_channels(backend: str, order: str) -> None:
    file = encoded(image(7, 8), "PPM")
    (pixels, _), want = compiled(backend, order)(bytes_of(file)), by_pillow(file).astype(np.int64)
    grey = (want @ [19595, 38470, 7471] + 32768) >> 16
    np.testing.assert_array_equal(pixels, want[:, :, ::-1] if order == "BGR" else grey[:, :, None])


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_no_image(backend: str) -> None:
    run, whole = compiled(backend), encoded(image(5, 6), "PPM")
    for file in (b"", b"P", b"no image", whole[:-1], b"P6 0 5 255\n"):
        with pytest.raises(InputValueError, match="IRC6109" if backend == "c" else "IRC6317"):
            run(bytes_of(file))
    np.testing.assert_array_equal(run(bytes_of(whole))[0], by_pillow(whole))


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_image_that_is_too_large(backend: str) -> None:
    with pytest.raises(irc.IrcError, match="IRC6109" if backend == "c" else "DecompressionBombError"):
        compiled(backend)(bytes_of(b"P6 99999 99999 255\n" + bytes(99)))


@pytest.mark.compiler
def test_sizes_of_one_file_are_no_measure_for_others() -> None:
    """A header may ask for any size; long and wide images that each have room need not have it together."""
    run, whole = compiled("c"), encoded(image(5, 6), "PPM")
    for header in (b"P6 1 99999999 255\n", b"P6 99999999 1 255\n"):
        with pytest.raises(irc.IrcError):
            run(bytes_of(header + bytes(9)))
    for file in (b"P4 1 800000\n" + bytes(800000), b"P4 800000 1\n" + bytes(100000), whole):
        np.testing.assert_array_equal(run(bytes_of(file))[0], by_pillow(file))


def test_pillow_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setattr(source, "_SOURCES", WeakKeyDictionary[Any, Any]())
    with pytest.raises(irc.IrcError, match="IRC6363"):
        irc.compile(model(), backend="numpy")
