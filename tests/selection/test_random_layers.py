"""Layers drawn at random, of the benchmark's families: for every instruction set there is C, whatever their sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import irc
from irc import driver
from tests.support.benchmarks import module

SEEDS = {"x86-64-v2": 1, "x86-64-v3": 13, "x86-64-v4": 3, "aarch64": 4}
LARGEST = 30_000_000  # bytes of a model: larger ones take long to draw, and choose as smaller ones do


@pytest.mark.parametrize("count", [60, pytest.param(3000, marks=pytest.mark.full)])
@pytest.mark.parametrize("target", SEEDS)
def test_random_layers(tmp_path: Path, target: str, count: int) -> None:
    sweep: Any = module("sweep")
    file, failed = tmp_path / "layer.onnx", list[str]()
    for index in range(count):
        layer = sweep.draw(SEEDS[target], index, list(sweep.FAMILIES))
        if layer.model.ByteSize() > LARGEST:
            continue
        file.write_bytes(layer.model.SerializeToString())
        try:
            driver.sources(driver.load(file), driver.CompileOptions("c", 1 + index % 2, target=target))
        except irc.CompileError as error:
            failed.append(f"{index} {layer.family} {layer.text}: {error}")
    assert not failed
