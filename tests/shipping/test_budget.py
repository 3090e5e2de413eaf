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
from irc.toolchain import objects, stack
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
    used = stack.usage((folder / "digits.su").read_text())
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
    by_function = objects.functions([folder / "digits.o"])
    assert 0 <= boards.in_map(folder, "digits.o") - sum(by_function.values()) < 16
    assert by_function["digits_plan"] == said["functions"]["digits_plan"]
    arrays = sum("_data" in name for name in by_function)  # each has an address in the code, and is aligned
    assert 0 <= found["flash"] - said["flash_bytes"] < 16 * arrays
    assert 0 <= found["static"] - said["context_bytes"] - 4 * 10 < 64  # the result's array, aligned
    assert abs(found["stack"] - said["stack_bytes"]) <= 16  # C's library takes some, alignment is not written


def test_memory_is_said_without_a_target(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command.main([DIGITS, "--json", "--shape", "image[1,1,8,8]"], standalone_mode=False)
    memory = json.loads(capsys.readouterr().out)["memory"]
    assert memory["context_bytes"] >= memory["arena"]["bytes"] > 0 and memory["weights_bytes"] > 0
    assert len(memory["steps"]) == len(memory["arena"]["steps"])
    command.main([DIGITS], standalone_mode=False)
    assert re.search(r"memory of a run: arena .*batch B, weights [\d,]+ B", capsys.readouterr().out)


GRAPH = """node: { title: "a.c:leaf" label: "leaf\\na.c:1:1\\n100 bytes (static)" }
node: { title: "run" label: "run\\na.c:2:1\\n16 bytes (static)" }
node: { title: "a.c:part" label: "part\\na.c:3:1\\n300 bytes (static)" }
node: { title: "other" label: "other\\na.c:4:1\\n32 bytes (static)" }
node: { title: "a.c:large" label: "large\\na.c:5:1\\n900 bytes (static)" }
edge: { sourcename: "run" targetname: "a.c:leaf" }
edge: { sourcename: "run" targetname: "memset" }
"""
INDIRECT = 'edge: { sourcename: "a.c:leaf" targetname: "__indirect_call" }\n'
TAKES = """static body *const table[2] = {
    part};

static void give(void) {
    leaf(table);
}

void run(void) {
    give();
}

void other(void) {
    leaf(large);
}
"""


def call_graph(graphs: list[str], sources: dict[str, str]) -> stack.CallGraph:
    return stack.call_graph(graphs, stack.mentions_in(sources))


def test_the_deepest_calls_are_found() -> None:
    assert call_graph([GRAPH], {"a.c": TAKES}).deepest("run") == ["run", "a.c:leaf"]
    assert call_graph([GRAPH, INDIRECT], {"a.c": TAKES}).deepest("run") == ["run", "a.c:leaf", "a.c:part"]
    away = 'edge: { sourcename: "other" targetname: "a.c:leaf" }'
    assert call_graph([GRAPH, INDIRECT, away], {"a.c": TAKES}).stack("other") == 32 + 100 + 900


def test_a_function_that_no_text_hands_on_may_be_called_through_any_pointer() -> None:
    assert call_graph([GRAPH, INDIRECT], {}).deepest("run") == ["run", "a.c:leaf", "a.c:large"]
    assert call_graph([GRAPH, INDIRECT], {}).stack("nobody") is None


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
    if not stack.writes_graphs(compiler):
        pytest.skip("clang writes no graph of calls")
    made = irc.compile(DIGITS, backend="c", target="x86-64-v2", name="digits")
    made.save(tmp_path / "d")
    needed = made.artifact.manifest["stack_bytes"]
    assert 0 < needed <= 8192
    assert f"#define DIGITS_STACK_BYTES {needed} /* of digits_run" in (tmp_path / "d" / "digits.h").read_text()


@pytest.mark.compiler
def test_the_stack_stands_in_the_header_of_sources(tmp_path: Path) -> None:
    if not stack.writes_graphs(require_compiler()):
        pytest.skip("clang writes no graph of calls")
    from irc.cli.compile import command

    command.main([DIGITS, "-o", str(tmp_path / "d"), "--single-file", "--target", "plain"], standalone_mode=False)
    found = re.search(r"#define DIGITS_STACK_BYTES (\d+) /\* of", (tmp_path / "d" / "digits.h").read_text())
    assert found and 0 < int(found[1]) <= 4096
    assert "digits_data0[" in (tmp_path / "d" / "digits.c").read_text(), "data are left out of what is measured only"
