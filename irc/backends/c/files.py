"""Loop IR to C11: the files of an artefact.

Names of files begin with the program's, where it was given one: `digits.c`, `digits_kernels_0.c`, `digits_weights.bin`.
`model.c` holds one function per fused group (one for all groups that are equal) and the interface; the functions of
a large program stand in `model_1.c` and so on.  `model.h` declares the interface; `weights.bin` holds the constants
(or the C file does).  Kernels go to `kernels_*.c`, which is compiled with other flags, and are declared in `kernels.h`;
where everything is one file, macros choose them or the rest.  The text depends only on the program and the options.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from irc.backends.c import prelude, wide_loops
from irc.backends.c.data import ALIGNMENT, ELEMENTS, Weights
from irc.backends.c.entry_points import entry_points
from irc.backends.c.expr import MATH, PREDICATES
from irc.backends.c.function import Kernel, Signature, Unit
from irc.backends.c.interface import INTERFACE, POOL, Interface, context, header
from irc.backends.c.kernel_files import LOOPS_PART, divide, effort_of, parts_of, together
from irc.backends.c.kernel_text import SYMBOL, described, in_lines
from irc.backends.c.names import Names, prefix_of, stem
from irc.backends.c.project import ObjectFile, Project, cmake, main_c, makefile
from irc.backends.c.shared import print_functions
from irc.backends.c.text import CComment, CName, cut
from irc.kernels.core.text import Part, needed, own
from irc.loops.ir import Buffer, KernelCall, Program, walk
from irc.loops.memory import MemoryPlan
from irc.toolchain.c_compiler import ONLY_KERNELS, WITHOUT_KERNELS, is_kernels, source_flags, stated_flags
from irc.toolchain.libraries import NOT_OF_THE_LIBRARY

__all__ = ["MATH", "PREDICATES", "EmitOptions", "Files", "Kernel", "emit", "print_kernels"]


T = TypeVar("T")
Files = dict[str, str | list[bytes | memoryview]]
Ready = Callable[[Mapping[str, str]], None]
"""Gets the files of kernels, and the header that they include, while the others are made."""


@dataclass(frozen=True)
class EmitOptions:
    """prefix: of every public name (None: from the program's name).  stem: what names of files begin with, `<stem>.c`,
    `<stem>_kernels_0.c` (None: model.c, kernels_0.c).  weights: "file" for weights.bin, "embed" for one C file with the
    data in it.  target: the compiler's flags for the processor, which the files state.  profile: P_run notes the time
    around every function (P_profile).  vectors: whether the processor has some; compiler: what the Makefile calls;
    threads: whether there may be some, and irc_rt.c; wide: whether a core multiplies and adds two vectors of 512 bits a
    cycle.  With a `stem` comes what one needs to build the folder."""

    prefix: str | None = None
    stem: str | None = None
    weights: Literal["file", "embed"] = "file"
    target: tuple[str, ...] = ()
    profile: bool = False
    vectors: bool = True
    compiler: str = "cc"
    threads: bool = True
    wide: bool = False

    @property
    def main(self) -> str:
        """The name of the main file and the header, without their endings."""
        return self.stem or "model"

    def file(self, name: str) -> str:
        """Spell the name of a file that is neither."""
        return f"{self.stem}_{name}" if self.stem else name


@dataclass(frozen=True)
class PrintedKernels:
    """The kernels of a program: their `files`, with the header, and `first`, what files that call them begin
    with; none where there are no kernels, or where the only file has them."""

    unit: Unit
    first: list[str]
    files: dict[str, str]


def print_kernels(program: Program, options: EmitOptions | None = None, ready: Ready | None = None) -> PrintedKernels:
    """Print the kernels of a program.

    They do not depend on where its memory is: `ready` gets them before that is decided.
    """
    options = options or EmitOptions()
    prefix = prefix_of(program.name) if options.prefix is None else CName(options.prefix)
    unit = _unit(program, prefix, options)
    for call in (s for f in program.functions for s in walk(f.body) if isinstance(s, KernelCall)):
        unit.add_kernel(call.kernel)
    first, files = _kernels(unit, options)
    if ready is not None and files:
        ready(files)
    return PrintedKernels(unit, first, files)


def emit(
    program: Program, plan: MemoryPlan, options: EmitOptions | None = None, printed: PrintedKernels | None = None
) -> Files:
    """Print the files of the artefact, by name: text of C files, weights.bin in pieces.

    printed: what `print_kernels` made of the program with these options.
    """
    options = options or EmitOptions()
    printed = printed or print_kernels(program, options)
    unit, kernels = printed.unit, printed.first
    weights = Weights(unit.prefix, options.weights == "embed", ALIGNMENT if options.vectors else ELEMENTS)
    for b in program.buffers():
        if b.data is not None:
            weights.pointer(b.data, b.dtype)
    interface = Interface(unit, program, plan, weights, options.file(WEIGHTS), profile=options.profile)
    groups, calls = print_functions(
        unit, program.functions, lambda f: _aliased(f.reads + f.scratch + f.writes, program, plan)
    )
    unit.helpers.clear()
    interface_text = [context(interface), entry_points(interface, calls)]
    files: Files = {f"{options.main}.h": in_lines(header(interface)), **printed.files}
    inline, parts = _divided(groups, options)
    for k, part in enumerate(parts, 1):
        loops, calls = [_shared(g) for g in part if g.loops], [_shared(g) for g in part if not g.loops]
        body = [*kernels, *loops, *([_LITTLE_OPTIMISED, *calls] if calls else [])]
        files[f"{options.main}_{k}.c"] = _source(program, options, body, part)
    prototypes = ["\n".join(f"{g.prototype};" for part in parts for g in part) + "\n"] if parts else []
    own = [*prototypes, *([_LITTLE_OPTIMISED] if parts else []), *(g.text for g in inline), *interface_text]
    if weights.embedded:
        own.insert(0, weights.definitions())
        top = str(files[f"{options.main}.h"])
        files[f"{options.main}.c"] = _single_source(program, options, top, kernels, own, inline, unit.helpers)
    else:
        own = [*(kernels if inline else []), *own]
        files[f"{options.main}.c"] = _source(program, options, own, inline, unit.helpers)
    if not weights.embedded:
        files[options.file(WEIGHTS)] = weights.pieces()
    if options.stem:
        files |= _project(interface, options, files)
    return files


def constant_of(header: str, name: str) -> int | None:
    """Read a constant of the header, if it has it: sizes are known where no input decides them."""
    found = re.search(rf"_{name} (\d+)$", header, re.MULTILINE)
    return int(found[1]) if found else None


def weights_bytes(program: Program, options: EmitOptions) -> int:
    """Count the bytes of all constants, as they stand in the file or in C."""
    weights = Weights(CName("w"), False, ALIGNMENT if options.vectors else ELEMENTS)
    for b in program.buffers():
        if b.data is not None:
            weights.pointer(b.data, b.dtype)
    return weights.size


def _project(i: Interface, options: EmitOptions, files: Files) -> dict[str, str]:
    """Print main.c and the build files."""
    main = main_c(i)
    units = object_files(files, options.vectors)
    made = Project(i.prefix, units, options.target, options.compiler, options.threads, main is not None)
    found = {"Makefile": makefile(made), "CMakeLists.txt": cmake(made)}
    return found if main is None else found | {"main.c": main}


def function_texts(program: Program, plan: MemoryPlan, options: EmitOptions | None = None) -> list[str]:
    """Print the C function that computes each function of the program, in order; equal ones are one."""
    options = options or EmitOptions()
    prefix = prefix_of(program.name) if options.prefix is None else CName(options.prefix)
    unit = _unit(program, prefix, options)
    calls = print_functions(unit, program.functions, lambda f: _aliased(f.reads + f.scratch + f.writes, program, plan))
    return [in_lines(call.text) for call in calls[1]]


def object_files(files: Files, vectors: bool) -> list[ObjectFile]:
    """List what is compiled of C files, and with which flags but those of the processor."""
    units: list[ObjectFile] = []
    for source in sorted(f for f in files if f.endswith(".c") and f not in NOT_OF_THE_LIBRARY):
        stem, kernels = source[:-2], is_kernels(source)
        both = f"#ifdef {ONLY_KERNELS}" in str(files[source]) or f"#ifndef {ONLY_KERNELS}" in str(files[source])
        leave_out = (f"-D{WITHOUT_KERNELS}",) if both else ()
        units.append(ObjectFile(stem, source, (*source_flags(kernels, vectors), *leave_out)))
        if both:
            units.append(ObjectFile(f"{stem}_kernels", source, (*source_flags(True), f"-D{ONLY_KERNELS}")))
    return units


def _divided(groups: list[Signature], options: EmitOptions) -> tuple[list[Signature], list[list[Signature]]]:
    """Divide the groups: those of the main file, and those of each further one, which are compiled in parallel."""
    if options.weights == "embed" or sum(len(g.text) for g in groups) <= LOOPS_PART // 5:
        return groups, []
    return [], parts_of(groups, effort_of, -(-sum(map(effort_of, groups)) // LOOPS_PART))


def _shared(g: Signature) -> str:
    """Print a group's definition for use from another file."""
    name = f"void {g.name}("
    return g.text.replace(f"static {name}", f"{g.prototype};\n{name}")


def _source(
    program: Program, options: EmitOptions, body: list[str], groups: list[Signature], helpers: Iterable[str] = ()
) -> str:
    """Print a C file: what it is, what it includes, the helpers it needs, its text."""
    include = f'#include "{options.main}.h"\n'
    parts = [_top(program, options), include, _INCLUDES, _macros(groups), _helpers(groups, helpers), *body]
    return in_lines("\n".join(p for p in parts if p))


def _single_source(
    program: Program,
    options: EmitOptions,
    header: str,
    kernels: list[str],
    body: list[str],
    groups: list[Signature],
    helpers: Iterable[str],
) -> str:
    """Print the only C file: header, kernels and the rest; macros can leave out either of the latter."""
    rest = [_macros(groups), _helpers(groups, helpers), *body]
    if kernels:
        rest = [f"#ifndef {ONLY_KERNELS}\n", *rest, f"#endif /* {ONLY_KERNELS} */\n"]
    top = _top(program, options, _TWO_PARTS if kernels else "")
    return in_lines("\n".join(p for p in [top, header, _INCLUDES, *kernels, *rest] if p))


def _top(program: Program, options: EmitOptions, more: str = "") -> str:
    rest, kernels = _flags(False, options), _flags(True, options)
    said = more.format(kernels=kernels, only=ONLY_KERNELS, without=WITHOUT_KERNELS)
    return _TOP.format(name=CComment(cut(program.name, 120)), flags=rest, more=said)


def _flags(kernels: bool, options: EmitOptions) -> str:
    """Print the flags as lines of a comment."""
    margin = " *     "
    return textwrap.fill(
        stated_flags(kernels, options.target, options.vectors),
        110,
        initial_indent=margin,
        subsequent_indent=margin,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _macros(groups: list[Signature]) -> str:
    used = any("IRC_SIMD" in g.text or "IRC_LANES" in g.text for g in groups)
    return (_MACROS if used else "") + (wide_loops.MACRO if any("IRC_WIDE" in g.text for g in groups) else "")


def _helpers(groups: list[Signature], more: Iterable[str]) -> str:
    return prelude.text({h for g in groups for h in g.helpers} | set(more))


KERNELS = "kernels.h"
"""The file of the kernels' declarations."""
WEIGHTS = "weights.bin"
_TOP = """/* {name}
 * Generated by irc.  C11; irc compiles it with
{flags}.
{more} * One function per fused group of layers, or for all groups that are equal; the function whose name ends in _run
 * calls them in order. */
"""
_TWO_PARTS = """ * These flags are for all but the kernels: -D{without} leaves them out.  -D{only} leaves out
 * the rest, and goes with
{kernels}.
 * Compiled in one piece, kernels are slower where the compiler may not contract products and sums, as GCC may not
 * with -std=c11; where it may, other results can differ from NumPy's in the last bit.
"""
_TYPES = "#include <stddef.h>\n#include <stdint.h>\n"
_INCLUDES = "#include <math.h>\n#include <string.h>\n"
_LITTLE_OPTIMISED = """/* What follows calls the rest, and takes next to no time in a run: GCC need not optimise it. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize ("Og", "no-inline")
#endif
"""
_MACROS = """#if defined(__clang__)
#define IRC_SIMD _Pragma("clang loop vectorize(assume_safety)")
#define IRC_LANES IRC_SIMD
#pragma clang diagnostic ignored "-Wpass-failed"
#elif defined(__GNUC__)
#define IRC_SIMD _Pragma("GCC ivdep")
#define IRC_LANES _Pragma("GCC ivdep") _Pragma("GCC unroll 16") /* accumulators in registers */
#else
#define IRC_SIMD
#define IRC_LANES
#endif
"""


def _unit(program: Program, prefix: CName, options: EmitOptions) -> Unit:
    names = Names()
    names.taken |= {f"{prefix}_{f}" for f in INTERFACE}
    symbols: dict[str, CName] = {}
    for s in (*program.symbols, *(size.symbol.name for size in program.sizes)):
        symbols[s] = names.of_model(stem(s), numbered="?" in s)
    return Unit(prefix, symbols, names, options.threads, options.vectors, options.wide)


def _aliased(buffers: Sequence[Buffer], program: Program, plan: MemoryPlan) -> set[Buffer]:
    """Find the arena buffers of one function that may share memory: their pointers are not `restrict`."""
    roots = [b for b in dict.fromkeys(b.root for b in buffers) if b in plan.offsets]
    ends = [plan.offsets[b] + program.bytes(b) for b in roots]
    found: set[Buffer] = set()
    for k, a in enumerate(roots):
        for b, end in zip(roots[k + 1 :], ends[k + 1 :], strict=True):
            if not (ends[k].at_most(plan.offsets[b]) or end.at_most(plan.offsets[a])):
                found |= {a, b}
    return found


def _kernels(unit: Unit, options: EmitOptions) -> tuple[list[str], dict[str, str]]:
    """Print what files that call kernels say of them, and the files of kernels.

    Their declarations are a header, their definitions files of their own; when embedding, all stand in the one file.
    """
    if not unit.kernels:
        return [], {}
    kernels = list(unit.kernels.values())
    declarations = "\n".join(unit.kernel_names.rename(k.declaration()) for k in kernels)
    sources = [source for group in together([(k, k.parts()) for k in kernels]) for source in group]
    if options.weights == "embed":
        return [declarations, f"#ifndef {WITHOUT_KERNELS}\n", _definitions(unit, sources), "#endif\n"], {}
    guard = f"{unit.prefix.upper()}_KERNELS_H"
    head = [
        "/* Arguments of kernels, and their functions.  Generated by irc. */",
        f"#ifndef {guard}\n#define {guard}\n",
    ]
    declared = options.file(KERNELS)
    files = {declared: in_lines("\n".join([*head, _TYPES, POOL, declarations, "#endif\n"]))}
    top = f"/* Kernels.  Generated by irc, which compiles them with\n{_flags(True, options)}. */\n"
    for n, part in enumerate(divide(sources)):
        text = "\n".join([top, f'#include "{declared}"\n', _definitions(unit, part)])
        files[options.file(f"kernels_{n}.c")] = in_lines(text)
    return [f'#include "{declared}"\n'], files


def _definitions(unit: Unit, sources: Sequence[tuple[Kernel, Sequence[Part]]]) -> str:
    """Print the definitions of several kernels, what they share first, once."""
    shared = needed([parts for _, parts in sources])
    unit.kernel_names.add_shared(shared)
    texts = [unit.kernel_names.rename(p.code) for p in shared]
    for k, parts in sources:
        code = unit.kernel_names.rename(described(k.description, own(parts)))
        texts.append(code.replace(SYMBOL, k.symbol))
    return "\n".join(texts)
