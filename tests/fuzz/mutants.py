"""Mutant number `n` of a target: the same files for the same seed, number and pool of seeds."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.fuzz import onnx_mutators, openvino_mutators, seeds
from tests.fuzz.seeds import Files

FORMATS = {"onnx": "onnx", "xml": "openvino", "bin": "openvino"}
"""Target → the format of its files."""


@dataclass
class Mutants:
    """Draws mutants; `kept` are mutants that showed something new, mutated further from then on."""

    target: str
    seed: int
    deep: bool = True
    kept: list[Files] = field(default_factory=list[Files])

    def draw(self, number: int) -> Files:
        """The files of a mutant; the first is the model."""
        rng = Random(f"{self.target} {self.seed} {number}")
        files = dict(self._seed(rng))
        model, weights = next(iter(files)), "m.bin"

        def donor() -> bytes:
            return next(iter(seeds.draw(FORMATS[self.target], rng, self.deep).values()))

        if self.target == "onnx":
            files[model] = onnx_mutators.mutate(files[model], rng, donor)
        elif self.target == "xml":
            files[model] = openvino_mutators.mutate_xml(files[model], rng, donor)
        else:
            files[weights] = openvino_mutators.mutate_weights(files.get(weights, b""), rng)
            if rng.random() < 0.3:
                files[model] = openvino_mutators.mutate_xml(files[model], rng, donor)
        return files

    def _seed(self, rng: Random) -> Files:
        if self.kept and rng.random() < 0.4:
            files = rng.choice(self.kept)
            if well_formed(files):
                return files
        while True:
            files = seeds.draw(FORMATS[self.target], rng, self.deep)
            if self.target != "bin" or files.get("m.bin"):
                return files


def well_formed(files: Files) -> bool:
    """Whether a mutant can be mutated further."""
    from lxml import etree
    from onnx import ModelProto

    model, data = next(iter(files.items()))
    try:
        if model.endswith(".onnx"):
            ModelProto.FromString(data)
        else:
            etree.fromstring(data)
    except Exception:  # whatever the parsers say
        return False
    return True


def write(files: Files, folder: Path) -> Path:
    """Write the files into an empty folder; the model's path."""
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder / next(iter(files))
