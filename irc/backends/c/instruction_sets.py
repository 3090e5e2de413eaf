"""One artefact for several instruction sets: the code of each, and an interface that passes calls on to one of them.

Each set is a program of its own, with its own prefix, files, kernels and packing of weights.  Which one runs is
decided once, when the library is loaded, by what the processor and the operating system say they have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from irc.backends.c.files import Files, object_files
from irc.backends.c.kernel_text import in_lines
from irc.backends.c.project import ObjectFile, Project, cmake, makefile
from irc.toolchain.c_compiler import stated_flags

PAGE = 4096
"""What the weights of a set are aligned to in their common file: those of other sets are never read."""
_TESTS = {
    "x86-64": "1",
    "x86-64-v2": " && ".join(f'__builtin_cpu_supports("{f}")' for f in ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt")),
    "x86-64-v3": " && ".join(
        [*(f'__builtin_cpu_supports("{f}")' for f in ("avx", "avx2", "bmi", "bmi2", "fma")), "more"]
    ),
    "x86-64-v4": " && ".join(f'__builtin_cpu_supports("avx512{f}")' for f in ("f", "bw", "cd", "dq", "vl")),
}


@dataclass(frozen=True)
class Member:
    """The code for one instruction set: its target's name, its prefix, which is also its files' stem, and its files."""

    target: str
    prefix: str
    files: Files
    flags: tuple[str, ...]


def member_prefix(prefix: str, target: str) -> str:
    """Spell the prefix of the code for one instruction set, x86-64-v3 say: NAME_v3."""
    return f"{prefix}_{target.removeprefix('x86-64').removeprefix('-') or 'v1'}"


def joined(prefix: str, main: str, weights: str, members: Sequence[Member], flags: Sequence[str]) -> Files:
    """Join the files of all sets, lowest first: `main`.c and `main`.h pass calls on; the weights follow one another."""
    found: Files = {}
    places, pieces = [0] * len(members), list[bytes | memoryview]()
    end = 0
    for k, member in enumerate(members):
        for name, content in member.files.items():
            if name != f"{member.prefix}_weights.bin" or isinstance(content, str):
                if name not in ("Makefile", "CMakeLists.txt", "main.c"):
                    found[name] = content
                continue
            size = sum(memoryview(piece).nbytes for piece in content)
            if size:
                pieces += [bytes(-end % PAGE), *content]
                places[k] = end + -end % PAGE
                end = places[k] + size
    if any(f"{member.prefix}_weights.bin" in member.files for member in members):
        found[weights] = pieces
    found[f"{main}.h"] = _header(prefix, weights, members, end)
    found[f"{main}.c"] = in_lines(_source(prefix, main, members, places, flags))
    return found


def build_files(prefix: str, weights: str, members: Sequence[Member], files: Files, compiler: str) -> dict[str, str]:
    """Print main.c, where each set has one, and the build files: the flags of each file say which set it is for."""
    units: list[ObjectFile] = []
    for unit in object_files(files, vectors=True):
        flags = next((m.flags for m in members if unit.source.startswith(m.prefix)), ())
        units.append(replace(unit, flags=(*unit.flags, *flags)))
    first = members[0]
    program = first.files.get("main.c")
    made = Project(prefix, units, (), compiler, threads=True, program=program is not None)
    found = {"Makefile": makefile(made), "CMakeLists.txt": cmake(made)}
    if program is not None:
        text = str(program).replace(f"{first.prefix}_weights.bin", weights).replace(f"{first.prefix}.h", f"{prefix}.h")
        found["main.c"] = _renamed(text, first.prefix, prefix)
    return found


def _header(prefix: str, weights: str, members: Sequence[Member], size: int) -> str:
    """Print the header of the whole: that of the first set under other names, with sizes that do for all."""
    texts = [str(member.files[f"{member.prefix}.h"]) for member in members]
    text = texts[0].replace(f"{members[0].prefix}_weights.bin", weights)
    text = _renamed(text, members[0].prefix, prefix)
    numbers = {"WEIGHTS_BYTES": size if size else None}
    for name in ("ARENA_BYTES", "CONTEXT_BYTES"):
        found = [re.search(rf"^#define \w+_{name} (\d+)$", t, re.MULTILINE) for t in texts]
        numbers[name] = max(int(f[1]) for f in found if f) if all(found) else None
    for name, number in numbers.items():
        if number is not None:
            text = re.sub(rf"^(#define \w+_{name}) \d+$", rf"\1 {number}", text, flags=re.MULTILINE)
    head, end, tail = text.rpartition("#ifdef __cplusplus")
    declared = _DECLARED.replace("P_PUBLIC", f"{prefix.upper()}_PUBLIC").replace("P_target", f"{prefix}_target")
    return f"{head}{declared}\n{end}{tail}"


def _renamed(text: str, old: str, new: str) -> str:
    """Put another prefix into a header."""
    return re.sub(rf"\b{old.upper()}_", f"{new.upper()}_", re.sub(rf"\b{old}_", f"{new}_", text))


def _source(prefix: str, main: str, members: Sequence[Member], places: Sequence[int], flags: Sequence[str]) -> str:
    """Print the functions of the interface."""
    p, numbered = prefix, list(enumerate(members))
    includes = "\n".join(f'#include "{name}.h"' for name in (main, *(m.prefix for m in members)))
    choices = "\n".join(f"    if ({_TESTS[m.target]}) {p}_set = {k}; /* {m.target} */" for k, m in numbered[1:])
    lines = [_TOP.format(flags=stated_flags(False, flags)), includes, "\n#include <cpuid.h>\n", _CHOOSE.format(p=p)]
    text = "\n".join(lines).replace("CHOICES", choices)
    at = [f"(const uint8_t *)weights + {place}" if place else "weights" for place in places]
    embedded = "weights ? {} : 0"
    inits = [f"(void *)ctx, {embedded.format(at[k]) if places[k] else at[k]}, pool" for k, _ in numbered]
    status = f"enum {p}_status"
    functions = [
        ("size_t", "context_size", "const int64_t *dims", ["dims"] * len(members)),
        (status, "init", f"{p}_ctx *ctx, const void *weights, const irc_pool *pool", inits),
        (status, "plan", f"{p}_ctx *ctx, const int64_t *dims", ["(void *)ctx, dims"] * len(members)),
        (
            status,
            "run",
            f"{p}_ctx *ctx, const void *const *in, void *const *out, int64_t *out_dims",
            ["(void *)ctx, in, out, out_dims"] * len(members),
        ),
        ("void", "reset", f"{p}_ctx *ctx", ["(void *)ctx"] * len(members)),
    ]
    if f"{members[0].prefix}_needed(" in str(members[0].files[f"{members[0].prefix}.h"]):
        functions.append(
            ("void", "needed", f"const {p}_ctx *ctx, int64_t *dims", ["(const void *)ctx, dims"] * len(members))
        )
    names = ", ".join(f'"{m.target}"' for m in members)
    told = f"\nconst char *{p}_target(void) {{\n    static const char *const names[] = {{{names}}};\n"
    return text + "".join(_function(p, members, *f) for f in functions) + f"{told}    return names[{p}_set];\n}}\n"


def _function(prefix: str, members: Sequence[Member], kind: str, name: str, takes: str, gives: Iterable[str]) -> str:
    """Print a function that calls that of the chosen set."""
    result = "" if kind == "void" else f"return ({kind})"
    cases = [f"{member.prefix}_{name}({given})" for member, given in zip(members, gives, strict=True)]
    end = " return;" if kind == "void" else ""
    lines = [f"    case {k}: {result}{call};{end}" for k, call in enumerate(cases[1:], 1)]
    body = "\n".join([f"    switch ({prefix}_set) {{", *lines, f"    default: {result}{cases[0]};", "    }"])
    return f"\n{kind} {prefix}_{name}({takes}) {{\n{body}\n}}\n"


_DECLARED = """/* The instruction set whose code runs on this processor. */
P_PUBLIC const char *P_target(void);
"""
_TOP = """/* The same model for several instruction sets: calls go to the code for the best that this processor has.
 * Generated by irc.  C11, for GCC and clang; irc compiles it with
 *     {flags}
 * and the files of each set with the flags that they state. */"""
_CHOOSE = """/* Which set: chosen when the library is loaded. */
static int {p}_set;

__attribute__((constructor)) static void {p}_choose(void) {{
    unsigned a, b, c = 0, d, c1 = 0;
    __get_cpuid(1, &a, &b, &c, &d);
    __get_cpuid(0x80000001, &a, &b, &c1, &d);
    const int more = c >> 29 & c >> 22 & c1 >> 5 & 1; /* F16C, MOVBE, LZCNT */
    (void)more;
    __builtin_cpu_init();
CHOICES
}}
"""
