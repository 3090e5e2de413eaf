"""What `irc info --target` says of flash, RAM and stack is what compilers and headers say."""

from __future__ import annotations

import json
import re
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

import irc
from irc.cli.info import command
from irc.loops.budget import picture
from irc.toolchain import frames
from irc.toolchain.c_compiler import require_compiler
from tests.shipping.test_targets import DIGITS, ONE
from tests.support import boards, shipped


def said_of(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    command.main([DIGITS, "--json", "--shape", "image[1,1,8,8]", *options], standalone_mode=False)
    return json.loads(capsys.readouterr().out)["budget"]


@pytest.mark.parametrize(
    ("target", "size", "extra"), [("plain", "size", []), ("cortex-m4", "arm-none-eabi-size", ["CC=arm-none-eabi-gcc"])]
)
def test_flash_ram_and_stack_are_those_of_the_tools(
    target: str, size: str, extra: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped.need("make", "gcc", size)
    said = said_of(capsys, "--target", target, "--svg", str(tmp_path / "arena.svg"))
    folder = shipped.folder_of(DIGITS, tmp_path / "d", "digits", target, shapes=ONE)
    shipped.made(folder, "libdigits.a", "CFLAGS=-fstack-usage", *extra)
    text = subprocess.run([size, "digits.o"], cwd=folder, capture_output=True, text=True, check=True).stdout
    code, data, bss = map(int, text.splitlines()[1].split()[:3])
    assert (said["code_bytes"], said["static_bytes"]) == (code, data + bss)
    text = subprocess.run(["nm", "-S", "digits.o"], cwd=folder, capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in text.splitlines() if len(line.split()) == 4]
    assert sum(said["functions"].values()) == sum(int(row[1], 16) for row in rows)
    assert said["functions"]["digits_run"] == next(int(row[1], 16) for row in rows if row[3] == "digits_run")
    assert 0 <= code - sum(said["functions"].values()) < 256 * len(said["functions"])  # tables for debuggers, alignment
    assert [s["weights_bytes"] for s in said["steps"]] == [4 * (8 + 72), 4 * (16 + 1152), 0, 4 * (10 + 2560)]
    assert said["weights_bytes"] == (folder / "digits_weights.bin").stat().st_size
    assert said["flash_bytes"] == code + said["weights_bytes"]
    assert f"DIGITS_CONTEXT_BYTES {said['context_bytes']}\n" in (folder / "digits.h").read_text()
    used = frames.usage((folder / "digits.su").read_text())
    assert used and all(used[row["function"]] == row["bytes"] for row in said["stack"])
    assert said["stack"][0]["function"] == "digits_run" and max(used.values()) == said["largest_frame"] <= 4096
    assert said["stack_bytes"] == sum(row["bytes"] for row in said["stack"])
    drawn = ElementTree.parse(tmp_path / "arena.svg").getroot()
    titles = [e.text for e in drawn.iter() if e.tag.endswith("title")]
    assert len(titles) == len(said["arena"]["tensors"]) > 0


@pytest.mark.parametrize("target", ["cortex-m4", "cortex-m55"])
def test_the_linker_s_map_and_the_watermark_of_a_board_say_the_same(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped.need("arm-none-eabi-gcc", "qemu-system-arm")
    said = said_of(capsys, "--target", target)
    folder = shipped.folder_of(DIGITS, tmp_path / "d", "digits", target, shapes=ONE, weights="embed")
    infer = boards.INFER["irc"].format(name="digits", NAME="DIGITS", inputs=64, outputs=10)
    found = boards.measured(folder, "digits.c", infer, target)
    assert found["flash"] == boards.in_map(folder, "digits.o")
    by_function = frames.functions([folder / "digits.o"])
    assert 0 <= boards.in_map(folder, "digits.o") - sum(by_function.values()) < 16
    assert by_function["digits_plan"] == said["functions"]["digits_plan"]
    assert 0 <= found["flash"] - said["flash_bytes"] < 64  # weights in the file have no constants around them
    assert 0 <= found["static"] - said["context_bytes"] - 4 * 10 < 64  # the result's array, aligned
    assert abs(found["stack"] - said["stack_bytes"]) <= 16  # C's library takes some, alignment is not written


def test_memory_is_said_without_a_target(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command.main([DIGITS, "--json", "--shape", "image[1,1,8,8]"], standalone_mode=False)
    memory = json.loads(capsys.readouterr().out)["memory"]
    assert memory["context_bytes"] >= memory["arena"]["bytes"] > 0 and memory["weights_bytes"] > 0
    assert len(memory["steps"]) == len(memory["arena"]["steps"])
    command.main([DIGITS], standalone_mode=False)
    assert re.search(r"memory of a run: arena .*batch B, weights [\d,]+ B", capsys.readouterr().out)


def test_the_deepest_calls_are_found() -> None:
    graph = """node: { title: "a.c:leaf" label: "leaf\\na.c:1:1\\n100 bytes (static)" }
node: { title: "run" label: "run\\na.c:2:1\\n16 bytes (static)" }
node: { title: "part" label: "part\\na.c:3:1\\n300 bytes (static)" }
edge: { sourcename: "run" targetname: "a.c:leaf" }
edge: { sourcename: "run" targetname: "memset" }
"""
    sizes, calls = frames.frames_of([graph])
    assert frames.deepest(sizes, calls, "run") == ["run", "leaf"]
    sizes, calls = frames.frames_of([graph, 'edge: { sourcename: "a.c:leaf" targetname: "__indirect_call" }'])
    assert frames.deepest(sizes, calls, "run") == ["run", "leaf", "part"]


def test_tensors_of_the_arena_do_not_overlap_while_they_live(capsys: pytest.CaptureFixture[str]) -> None:
    arena = said_of(capsys, "--target", "plain")["arena"]
    for k, a in enumerate(arena["tensors"]):
        assert a["at"] + a["bytes"] <= arena["bytes"]
        for b in arena["tensors"][k + 1 :]:
            apart = a["at"] + a["bytes"] <= b["at"] or b["at"] + b["bytes"] <= a["at"]
            assert apart or a["last"] < b["first"] or b["last"] < a["first"]
    with pytest.raises(ValueError, match="depends on sizes"):
        picture({**arena, "bytes": "4*n"}, "x")
    assert re.search("<svg", picture(arena, "a < b"))


@pytest.mark.compiler
def test_the_stack_stands_in_the_header_of_what_was_compiled(tmp_path: Path) -> None:
    compiler = require_compiler()
    if not frames.writes_graphs(compiler):
        pytest.skip("clang writes no graph of calls")
    made = irc.compile(DIGITS, backend="c", target="x86-64-v2", name="digits")
    made.save(tmp_path / "d")
    stack = made.artifact.manifest["stack_bytes"]
    assert 0 < stack <= 8192
    assert f"#define DIGITS_STACK_BYTES {stack} /* of digits_run" in (tmp_path / "d" / "digits.h").read_text()
