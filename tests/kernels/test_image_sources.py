"""The sources of image decoders: names of their own, functions of readable length, and all of them in one file."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from irc.kernels.core.text import PROTOTYPES
from irc.kernels.image import formats
from irc.kernels.image.kernel import ImageKernel
from tests.support.images import WARNINGS

FOLDER = Path(formats.__file__).parent
SOURCES = sorted(FOLDER.glob("*.c"))
PREFIXES = {f.name for f in formats.FORMATS} | {stem for f in formats.FORMATS for stem in f.shared}
FUNCTION_LINES = 60


def test_every_source_belongs_to_a_format() -> None:
    used = {file for f in formats.FORMATS for file in (*f.files, *(f"{stem}.c" for stem in f.shared))}
    assert {p.name for p in SOURCES} == used


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.name)
def test_names_and_lengths(path: Path) -> None:
    text = path.read_text("utf-8")
    assert max(map(len, text.split("\n"))) <= 120
    functions = re.findall(r"^static [^;{=]*\{\n.*?^\}", text, re.M | re.S)
    assert not [f.split("\n")[0] for f in functions if f.count("\n") >= FUNCTION_LINES]
    names = [f[: f.index("(")].split()[-1].lstrip("*") for f in functions if "(" in f.split("{")[0]]
    assert not [n for n in names if n.split("_")[0] not in PREFIXES]


@pytest.mark.compiler
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_all_in_one_file(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    (tmp_path / "all.c").write_text(PROTOTYPES + ImageKernel().source(), "utf-8")
    subprocess.run([compiler, *WARNINGS, "-O1", "-c", "-o", "all.o", "all.c"], check=True, cwd=tmp_path)
