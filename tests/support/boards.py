"""Boards of QEMU with a Cortex-M, and what a model takes there: linked with `bare_metal/measure.c` and run."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from irc.toolchain.c_compiler import source_flags
from irc.toolchain.objects import sections
from irc.toolchain.presets import PRESETS
from irc.toolchain.stack import usage

BARE_METAL = Path(__file__).resolve().parent / "bare_metal"


@dataclass(frozen=True)
class Board:
    """A machine of QEMU: its name, the file of its memory, the clock of its SysTick, the bytes of stack watched."""

    machine: str
    memory: str
    mhz: int
    painted: int

    @property
    def script(self) -> tuple[str, ...]:
        """How a program is laid out for it."""
        return ("-T", str(BARE_METAL / self.memory), "-L", str(BARE_METAL))


BOARDS = {
    "cortex-m0": Board("mps2-an385", "mps2.ld", 25, 2 << 20),
    "cortex-m4": Board("mps2-an386", "mps2.ld", 25, 2 << 20),
    "cortex-m7": Board("mps2-an500", "mps2.ld", 25, 2 << 20),
    "cortex-m55": Board("mps3-an547", "mps3.ld", 32, 128 << 10),
}
"""By target."""


class DoesNotRunError(Exception):
    """A program that the emulator gave up."""


INFER = {
    "irc": """#include "{name}.h"
static _Alignas(64) unsigned char context[{NAME}_CONTEXT_BYTES];
static const float in[{inputs}];
static float out[{outputs}];
void infer(void) {{
    static const void *const given[] = {{in}};
    static void *const made[] = {{out}};
    if ({name}_init(({name}_ctx *)context, 0, 0)) return;
    {name}_run(({name}_ctx *)context, given, made, 0);
}}
""",
    "other": """static const float in[{inputs}];
static float out[{outputs}];
void {entry}(const float *, float *);
void infer(void) {{ {entry}(in, out); }}
""",
}


def measured(folder: Path, source: str, infer: str, target: str = "cortex-m4") -> dict[str, int]:
    """Compile a source of the folder; its flash, RAM (static, the stack of a run), instructions, all of one run."""
    board = BOARDS[target]
    (folder / "infer.c").write_text(infer)
    gcc = ("arm-none-eabi-gcc", *source_flags(False, False), *PRESETS[target].flags, "-fstack-usage", "-w")
    own = (f"-DMHZ={board.mhz}", f"-DPAINTED={board.painted}")
    for name in (source, "infer.c", str(BARE_METAL / "measure.c"), str(BARE_METAL / "start.c")):
        compiled = str(folder / f"{Path(name).stem}.o")
        subprocess.run([*gcc, *own, "-c", name, "-o", compiled], cwd=folder, check=True, timeout=120)
    objects = [f"{Path(source).stem}.o", "infer.o", "measure.o", "start.o"]
    link = ["--specs=rdimon.specs", *board.script, *objects, "-lm", "-o", "board"]
    subprocess.run([*gcc, *link, "-Wl,-Map=board.map"], cwd=folder, check=True, timeout=60)
    emulator = ["qemu-system-arm", "-M", board.machine, "-nographic", "-icount", "shift=0", "-kernel", "board"]
    semihosting = ["-semihosting-config", "enable=on,target=native"]
    run = subprocess.run(
        [*emulator, *semihosting], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    if run.returncode:
        raise DoesNotRunError(f"does not run in the memory of {board.machine}")
    instructions, stack = map(int, run.stdout.split()[-2:])
    stack -= usage((folder / "infer.su").read_text())["infer"]
    own, harness = sections([folder / objects[0]]), sections([folder / "infer.o"])
    ram = own["data"] + own["bss"] + harness["data"] + harness["bss"]
    return {"flash": own["code"] + own["data"], "static": ram, "stack": stack, "instructions": instructions}


def in_map(folder: Path, member: str) -> int:
    """The bytes of an object's code and constants in the linker's map."""
    total = 0
    lines = (folder / "board.map").read_text().split("Linker script and memory map")[1].splitlines()
    joined = [a + b if len(a.split()) == 1 else a for a, b in zip(lines, [*lines[1:], ""], strict=True)]
    for line in joined:
        words = line.split()
        if len(words) >= 4 and words[0].startswith((".text", ".rodata")) and words[3].endswith(member):
            total += int(words[2], 16)
    return total
