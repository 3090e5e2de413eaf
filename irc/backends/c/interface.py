"""The C interface of a compiled model: `model.h`, the context, and the P_* functions around the groups."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

import numpy as np

from irc.backends.c.data import Weights
from irc.backends.c.function import LARGEST_INDEX, Unit
from irc.backends.c.run_sizes import NEEDED_DECLARATION
from irc.backends.c.sizes import (
    LARGEST_SIZE,
    LIMIT,
    CheckedSizes,
    Sizes,
    dim_text,
    largest,
    least,
    power,
    with_operands,
)
from irc.backends.c.text import CComment, CName, block_comment, cut, remark
from irc.backends.c.types import describe
from irc.diagnostics import require
from irc.diagnostics.codes import lowering, name_of, runtime
from irc.diagnostics.core import Code
from irc.ir.dim import Dim, Symbol
from irc.loops.ir import Buffer, Program
from irc.loops.memory import MemoryPlan, aligned

ABI_VERSION = 1
INTERFACE = ("ctx", "run", "init", "plan", "reset", "check", "context_size", "needed", "profile", "times", "stamp")
"""What follows the prefix in names of the interface."""


@dataclass
class State:
    """A variable: where its value is in the context, and where the run writes the next one."""

    name: str
    current: Buffer
    following: Buffer
    initial: np.ndarray | None  # type: ignore[type-arg]
    at: Dim
    swapped: Dim | None  # the second copy's place if the two take turns


@dataclass
class Interface:
    """What the header and the entry points need."""

    unit: Unit
    program: Program
    plan: MemoryPlan
    weights: Weights
    weights_file: str = "weights.bin"
    states: list[State] = field(default_factory=list[State])
    slots: dict[Dim, int] = field(default_factory=dict[Dim, int])  # symbolic offsets kept in the context
    profile: bool = False  # P_run notes the time before and after each function

    def __post_init__(self) -> None:
        self.arena = self._place_states(Dim.of(0))
        self.total = aligned(self.arena + self.plan.size)
        addresses = [self.arena + o for o in self.plan.offsets.values()]
        addresses += [a for s in self.states for a in (s.at, s.swapped) if a is not None]
        for a in addresses:
            if not a.is_const:
                self.slots.setdefault(a, len(self.slots))
        self.header = -(-8 * (6 + len(self.parameters) + len(self.slots)) // 64) * 64
        self._require_limits()

    def _require_limits(self) -> None:
        """Refuse a program that is too large for all sizes."""
        for b in (*self.program.buffers(), *self.program.outputs):
            smallest = math.prod((max(least(d), 1) for d in b.shape), start=b.dtype.itemsize)
            require(smallest <= LIMIT, lowering.SIZE_LIMIT, what=f"{b.name} {self.shape(b)}", limit=power(LIMIT))
        fits = least(self.total) <= LIMIT
        require(fits, lowering.SIZE_LIMIT, what="the memory of all tensors together", limit=power(LIMIT))

    @property
    def prefix(self) -> CName:
        return self.unit.prefix

    @property
    def macro(self) -> str:
        return self.prefix.upper()

    def status(self, code: Code) -> str:
        """Name the constant of `enum P_status` that a function returns for a finding."""
        return f"{self.macro}_STATUS_{name_of(code)}"

    @property
    def ok(self) -> str:
        """The constant that a function returns after success."""
        return f"{self.macro}_STATUS_OK"

    @property
    def is_static(self) -> bool:
        return not self.parameters

    @property
    def parameters(self) -> dict[str, CName]:
        """The symbols of P_plan's `dims`, in their order: sizes of inputs, and bounds of computed sizes."""
        return {s: self.unit.symbols[s] for s in (*self.program.symbols, *self.limits)}

    @property
    def limits(self) -> dict[str, int]:
        """The places in `dims` of the bounds of computed sizes, by symbol."""
        return {s.symbol.name: k for k, s in enumerate(self.program.limits, len(self.program.symbols))}

    def _place_states(self, at: Dim) -> Dim:
        """Place the states in front of the arena. Offsets count from the end of the context's header."""
        currents = {current.root for _, current, _, _ in self.program.states}
        for name, current, following, initial in self.program.states:
            state = State(name, current.root, following.root, initial, at, None)
            at = at + aligned(current.bytes)
            if following.root.where == "state" and following.root not in currents:
                state.swapped = at
                at = at + aligned(current.bytes)
            self.states.append(state)
        return at

    # ---------------------------------------------------------------- pieces
    def size(self, dim: Dim) -> str:
        """Print a size over local variables named like the symbols."""
        self.unit.sizes[dim] = None
        return dim_text(dim, lambda s: self.unit.symbols[s], self.unit.helper)

    def address(self, offset: Dim) -> str:
        """Print an offset in bytes from the start of the context."""
        if offset.is_const:
            return f"{int(offset) + self.header}"
        return f"ctx->at[{self.slots[offset]}]"

    def sizes(self) -> Sizes:
        """Start printing sizes in one function, after P_check has accepted them."""
        return Sizes(self.unit.symbols, self.unit.names.taken, self.unit.helper)

    def checked_sizes(self) -> CheckedSizes:
        """Start printing sizes in P_check, after the lines that check all that the program computes."""
        too_large = self.status(runtime.MODEL_TOO_LARGE)
        found = CheckedSizes(self.unit.symbols, self.unit.names.taken, self.unit.helper, too_large)
        buffers, total = [*self.program.buffers(), *self.program.outputs], self.total + self.header
        found.check(map(self._bound, with_operands(self.unit.counts)), LARGEST_INDEX)
        places = [total, *(at + self.header for at in self.slots)]
        found.check([*places, *map(self.program.bytes, buffers), *map(self._bound, with_operands(self.unit.sizes))])
        found.check_empty(b.shape for b in buffers if all(map(self.program.known, b.shape)))
        if not total.is_const:
            found.lines.append(f"    if ((uint64_t)({found.text(total)}) > SIZE_MAX / 2) return {too_large};")
        return found

    def _bound(self, size: Dim) -> Dim:
        """Bound the partial results of computing a size by what is known before a run."""
        return size if self.program.known(size) else self.program.capacity.magnitude(size)

    def doubtful_sizes(self) -> list[Dim]:
        """List the sizes of tensors that small inputs would make negative."""
        buffers = [*self.program.buffers(), *self.program.outputs]
        return list(dict.fromkeys(d for b in buffers for d in b.shape if d.bounds()[0] < 0))

    def shape(self, buffer: Buffer, rank: int | None = None) -> str:
        return cut(f"[{', '.join(map(str, buffer.shape[:rank]))}]", 200)

    def symbols(self) -> dict[str, Symbol]:
        """Collect the declared bounds of each symbol."""
        found: dict[str, Symbol] = {}
        for b in (*self.program.inputs, *self.program.outputs, *(s.current for s in self.states)):
            for d in b.shape:
                found.update({s.name: s for s in d.symbols()})
        return found

    def load_sizes(self, source: str, used: set[str]) -> list[str]:
        return [
            f"    const int64_t {n} = {source}[{k}];" for k, (s, n) in enumerate(self.parameters.items()) if s in used
        ]


# -------------------------------------------------------------------- model.h
POOL = """#ifndef IRC_POOL_DEFINED
#define IRC_POOL_DEFINED
/* Threads of the caller.  parallel_for calls fn(arg, begin, end) on parts that cover [0, n), and returns when
 * all are done.  Pass NULL for a pool to run everything on the calling thread. */
typedef struct irc_pool {
    void *self;
    void (*parallel_for)(void *self, int64_t n, void (*fn)(void *arg, int64_t begin, int64_t end), void *arg);
} irc_pool;
#endif
"""
STRINGS = """#ifndef IRC_STRING_DEFINED
#define IRC_STRING_DEFINED
/* A string in UTF-8: `size` bytes, without a 0 at the end.  Those of inputs are copied; those of outputs stand in the
 * context and last until the next run.  Of a tensor of strings, out_dims has one more size, which is 2. */
typedef struct irc_string {
    const char *data;
    int64_t size;
} irc_string;
#endif
"""


def header(i: Interface) -> str:
    """Print model.h."""
    p, m = i.prefix, i.macro
    title = CComment(f"{cut(i.program.name, 120)}: C interface.  Generated by irc.")
    parts = [block_comment([title, CComment(""), *_header_tensors(i)], "\n */")]
    parts += [f"#ifndef {m}_H\n#define {m}_H\n", "#include <stddef.h>\n#include <stdint.h>\n"]
    parts += ['#ifdef __cplusplus\nextern "C" {\n#endif\n', POOL]
    if any(b.strings for b in (*i.program.inputs, *i.program.outputs)):
        parts.append(STRINGS)
    parts.append("\n".join(f"#define {m}_{name} {value}" for name, value in _constants(i)) + "\n")
    parts.append(_statuses(i))
    declared = re.sub(r"\bP_PUBLIC\b", f"{m}_PUBLIC", _DECLARATIONS.replace("WEIGHTS_NOTE", _weights_note(i)))
    if i.limits:
        declared += re.sub(r"\bP_PUBLIC\b", f"{m}_PUBLIC", NEEDED_DECLARATION)
    if i.profile:
        declared += re.sub(r"\bP_PUBLIC\b", f"{m}_PUBLIC", _PROFILE_DECLARATION)
    parts.append(re.sub(r"\bP_", f"{p}_", declared))
    parts.append("#ifdef __cplusplus\n}\n#endif\n#endif")
    return "\n".join(parts) + "\n"


_DECLARATIONS = """/* A model that is ready to run, in memory of the caller: P_context_size bytes, aligned to 64.
 * It holds the state and the scratch memory; use one context for each call that runs at the same time. */
typedef struct P_ctx P_ctx;

#if defined(__GNUC__)
#define P_PUBLIC __attribute__((visibility("default")))
#else
#define P_PUBLIC
#endif

/* Bytes of a context for these sizes (`dims`: one number for each symbol above; NULL if there are none);
 * 0 if the sizes are not acceptable. */
P_PUBLIC size_t P_context_size(const int64_t *dims);

/* Prepares a context.  WEIGHTS_NOTE
 * `pool` may be NULL; it and the weights must outlive the context. */
P_PUBLIC enum P_status P_init(P_ctx *ctx, const void *weights, const irc_pool *pool);

/* Sets the sizes.  The context must have at least P_context_size(dims) bytes.  A model without symbols needs
 * no plan. */
P_PUBLIC enum P_status P_plan(P_ctx *ctx, const int64_t *dims);

/* Runs the model.  `in` and `out` point to the tensors listed above, in their order; outputs must not overlap
 * inputs or each other.  `out_dims`, unless NULL, receives the sizes of all outputs, one after the other. */
P_PUBLIC enum P_status P_run(P_ctx *ctx, const void *const *in, void *const *out, int64_t *out_dims);

/* Puts the state back to its initial values. */
P_PUBLIC void P_reset(P_ctx *ctx);
"""

_PROFILE_DECLARATION = """
/* The times of the latest run that ended in this process, in nanoseconds: when it began, when each of its functions
 * had returned, and when the results were in their places. */
P_PUBLIC const int64_t *P_profile(void);
"""


def _weights_note(i: Interface) -> str:
    if i.weights.embedded or not i.weights.size:
        return "`weights` is not used: pass NULL."
    return f"`weights` is the contents of {i.weights_file}, aligned to 64."


def _header_tensors(i: Interface) -> list[CComment]:
    lines: list[str] = []
    for title, tensors in (("in", i.program.inputs), ("out", i.program.outputs)):
        for k, b in enumerate(tensors):
            kind = f"irc_string {i.shape(b, len(b.shape) - 1)}" if b.strings else f"{describe(b.dtype)} {i.shape(b)}"
            lines.append(f"{title}[{k}]  {cut(b.name, 120)}: {kind}")
    bounds = i.symbols()
    for k, symbol in enumerate(i.program.symbols):
        s, name = bounds.get(symbol), i.unit.symbols[symbol]
        limits = f"{s.lo} to {largest(s)}" if s else f"0 to {LARGEST_SIZE}"
        lines.append(f"dims[{k}]  {name}" + (f" ({cut(symbol, 120)})" if name != symbol else "") + f": {limits}")
    for k, found in enumerate(i.program.limits, len(i.program.symbols)):
        lines.append(f"dims[{k}]  the most that a size of {cut(found.value, 120)} may come to, which the run computes")
    lines += [f"state  {cut(s.name, 120)}: {describe(s.current.dtype)} {i.shape(s.current)}" for s in i.states]
    return list(map(CComment, lines))


def _statuses(i: Interface) -> str:
    """Print the enumeration of what functions return."""
    constraints = sorted((d.code for d in i.program.all_constraints()), key=lambda code: code.number)
    codes = dict.fromkeys((*runtime.STATUSES, *constraints))
    rows = [f"    {i.status(c)} = {c.number}, {remark(c.title)}" for c in codes]
    note = "/* What functions give: 0, or the number of a finding, which `irc explain` explains. */"
    return "\n".join([note, f"enum {i.prefix}_status {{", f"    {i.ok} = 0,", *rows, "};"]) + "\n"


def _constants(i: Interface) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = [
        ("ABI_VERSION", ABI_VERSION),
        ("INPUTS", len(i.program.inputs)),
        ("OUTPUTS", len(i.program.outputs)),
        ("SYMBOLS", len(i.parameters)),
        ("OUTPUT_DIMS", sum(len(b.shape) for b in i.program.outputs)),
        ("WEIGHTS_BYTES", 0 if i.weights.embedded else i.weights.size),
    ]
    if i.plan.size.is_const:
        found.append(("ARENA_BYTES", int(i.plan.size)))
    if i.total.is_const:
        found.append(("CONTEXT_BYTES", int(i.total) + i.header))
    return found


# -------------------------------------------------------------------- entry points
_MARK = "0x697263206374782"
"""What memory begins with that holds a context: nothing that is in memory by chance."""


def context(i: Interface) -> str:
    """Print the definition of the context."""
    rows = [
        "const irc_pool *pool;",
        "const uint8_t *weights;",
        "uint64_t ready;  /* irc_fresh behind P_init, irc_planned when the sizes are set */".replace(
            "P_", f"{i.prefix}_"
        ),
        "int64_t turn;  /* which copy of the state is the current one */",
    ]
    if i.parameters:
        rows.append(f"int64_t dims[{len(i.parameters)}];")
    if i.limits:
        rows.append(
            "int64_t beyond, needed;  /* which of dims was too small for the latest run, and what it must be */"
        )
    if i.slots:
        rows.append(f"int64_t at[{len(i.slots)}];  /* places that depend on the sizes, in bytes from the start */")
    body = "\n".join(f"    {r}" for r in rows)
    p = i.prefix
    fresh = "" if i.is_static else f"static const uint64_t irc_fresh = {_MARK}0;\n"
    return (
        f"struct {p}_ctx {{\n{body}\n}};\n"
        f'_Static_assert(sizeof(struct {p}_ctx) <= {i.header}, "the state and the arena follow the context");\n'
        f"{fresh}static const uint64_t irc_planned = {_MARK}1;\n" + _static_size(i)
    )


def _static_size(i: Interface) -> str:
    """Print a check that the address space is large enough, if not every machine's is."""
    if not i.total.is_const or int(i.total) + i.header <= 0x7FFFFFFF:
        return ""
    return f'_Static_assert({int(i.total) + i.header} <= SIZE_MAX / 2, "the context fits into the address space");\n'


def bytes_text(i: Interface, size: Dim) -> str:
    """Print a size as a size_t."""
    return str(int(size)) if size.is_const else f"(size_t)({i.size(size)})"
