"""What a Cortex-M takes for a model: compiled, linked with `bare_metal/measure.c` and run in QEMU."""

from __future__ import annotations

import subprocess
from pathlib import Path

from irc.toolchain import frames
from irc.toolchain.c_compiler import source_flags

BARE_METAL = Path(__file__).resolve().parent / "bare_metal"
FLAGS = (*source_flags(False, False), "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")
"""Those that the Makefile of a folder has for cortex-m4."""
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


def measured(folder: Path, source: str, infer: str, flags: tuple[str, ...] = FLAGS) -> dict[str, int]:
    """Compile a source of the folder; its flash, RAM (static, the stack of a run), instructions, all of one run."""
    (folder / "infer.c").write_text(infer)
    gcc = ("arm-none-eabi-gcc", *flags, "-fstack-usage")
    for name in (source, "infer.c", str(BARE_METAL / "measure.c"), str(BARE_METAL / "start.c")):
        target = str(folder / f"{Path(name).stem}.o")
        subprocess.run([*gcc, "-w", "-c", name, "-o", target], cwd=folder, check=True, timeout=120)
    objects = [f"{Path(source).stem}.o", "infer.o", "measure.o", "start.o"]
    link = ["--specs=rdimon.specs", "-T", str(BARE_METAL / "memory.ld"), *objects, "-lm", "-o", "board"]
    subprocess.run([*gcc, *link, "-Wl,-Map=board.map"], cwd=folder, check=True, timeout=60)
    emulator = ["qemu-system-arm", "-M", "mps2-an386", "-nographic", "-icount", "shift=0", "-kernel", "board"]
    semihosting = ["-semihosting-config", "enable=on,target=native"]
    run = subprocess.run([*emulator, *semihosting], cwd=folder, capture_output=True, text=True, timeout=120, check=True)
    instructions, stack = map(int, run.stdout.split()[-2:])
    stack -= frames.usage((folder / "infer.su").read_text())["infer"]
    own, harness = frames.sections([folder / objects[0]]), frames.sections([folder / "infer.o"])
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
