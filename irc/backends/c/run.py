"""P_run: the calls of a program's functions, its branches and loops, and the sizes that it learns on the way."""

from __future__ import annotations

import re
from collections.abc import Sequence

from irc.backends.c.function import Signature, wrapped
from irc.backends.c.interface import Interface, State, bytes_text
from irc.backends.c.names import Names
from irc.backends.c.run_sizes import RunSizes
from irc.backends.c.text import CName, remark
from irc.backends.c.types import storage
from irc.diagnostics.codes import runtime
from irc.ir.relation import SizeConstraint
from irc.loops.ir import Branch, Buffer, Function, Guard, Repeat, Step, all_steps, touched_by


def run(i: Interface, calls: Sequence[Signature]) -> str:
    """Print P_run.  `calls` say how each function of the program is called, in their order."""
    printer = _Printer(i, calls)
    p, body = i.prefix, printer.body()
    words = set(re.findall(r"\w+", "\n".join(body)))  # a result without elements is written nowhere
    declared = [f"    {_declare(i, b, n)}" for b, n in printer.places.items() if n in words and b.where != "row"]
    text = "\n".join([*declared, *printer.sizes.declarations(), *body])
    head = [f"enum {p}_status {p}_run({p}_ctx *ctx, const void *const *in, void *const *out, int64_t *out_dims) {{"]
    head += refuse_other_memory(i)
    if "base +" in text:
        head.append("    uint8_t *const base = (uint8_t *)ctx;")
    head += [f"    (void){v};" for v in ("in", "out", "out_dims") if f"{v}[" not in text and f"({v})" not in text]
    if not i.is_static:
        head += [f"    if (ctx->ready != irc_planned) return {i.status(runtime.NOT_PLANNED)};"]
        head += i.load_sizes("ctx->dims", {s for s in i.program.symbols if i.unit.symbols[s] in words})
    return "\n".join([*head, text, f"    return {i.ok};", "}"]) + "\n"


def refuse_other_memory(i: Interface) -> list[str]:
    """Print the check that there is a context."""
    lines = [f"    if (!ctx || (uintptr_t)ctx % 64) return {i.status(runtime.MEMORY_MISALIGNED)};"]
    fresh = " && ctx->ready != irc_fresh" if not i.is_static else ""
    return [*lines, f"    if (ctx->ready != irc_planned{fresh}) return {i.status(runtime.NOT_INITIALISED)};"]


class _Printer:
    """Prints the steps of a program.  `places` names the pointers to root buffers."""

    def __init__(self, i: Interface, calls: Sequence[Signature]) -> None:
        self.i = i
        self.calls = {id(f): (k, call) for k, (f, call) in enumerate(zip(i.program.functions, calls, strict=True), 1)}
        self.names = Names(frozenset(i.unit.names.taken))
        used = [b for call in calls for b in call.buffers]
        used += [b.root for s in all_steps(i.program.steps) if not isinstance(s, Function) for b in touched_by(s)]
        used += [b.row[0].root for b in used if b.row is not None]
        used += [o.root for o in i.program.outputs]
        used += [*(s.following for s in i.states), *(s.buffer.root for s in i.program.sizes)]
        self.places = {b: self.names.of_model(b.name) for b in dict.fromkeys(used)}
        self.sizes = RunSizes(i, self.places)

    def body(self) -> list[str]:
        """Print all that happens in a run."""
        i = self.i
        waiting = [c for c in i.program.constraints if not all(map(i.program.known, c.relation.dims()))]
        lines = _stamp(i, 0)
        with self.sizes.block(waiting, ()) as checks:
            lines += [*self.sizes.after(None), *checks, *self.sizes.settle(None), *self._steps(i.program.steps, set())]
        lines += [*_copies(i, self.places), *_stamp(i, len(self.calls) + 1)]
        if any(s.swapped is not None for s in i.states):
            lines.append("    ctx->turn ^= 1;")
        if i.profile:
            count = len(self.calls) + 2
            lines.append(f"    for (int k = 1; k < {count}; k++) {i.prefix}_times[k] += {i.prefix}_times[k - 1];")
        return lines + _output_sizes(i)

    def _steps(self, steps: Sequence[Step], declared: set[Buffer]) -> list[str]:
        """Print steps one after the other.  `declared` are the rows of loops that have a pointer already."""
        lines: list[str] = []
        written = [_written(step) for step in steps]
        last = {b: k for k, buffers in enumerate(written) for b in buffers}
        for k, step in enumerate(steps):
            if isinstance(step, Function):
                place, call = self.calls[id(step)]
                lines += [line for b in call.buffers if b.row is not None for line in self._row(b, declared)]
                lines += [*self._call(call), *_stamp(self.i, place), *self.sizes.after(step.writes)]
            elif isinstance(step, Guard):
                lines += self.sizes.guard(step.size)
            elif isinstance(step, Branch):
                lines += self._branch(step, declared)
            else:
                lines += self._repeat(step, declared)
            lines += self.sizes.settle([b for b in written[k] if last[b] == k])
        return lines

    def _block(self, steps: Sequence[Step], constraints: Sequence[SizeConstraint], declared: set[Buffer]) -> list[str]:
        with self.sizes.block(constraints, [b for step in steps for b in _written(step)]) as checks:
            lines = [*checks, *self._steps(steps, set(declared))]
        return [f"    {line}" for line in lines]

    def _call(self, call: Signature) -> list[str]:
        args = [self.places[b] for b in call.buffers] + [self.i.unit.symbols[s] for s in call.symbols]
        return wrapped(f"    {call.name}(", [*args, *call.numbers, *["ctx->pool"] * call.pool], ");")

    def _row(self, b: Buffer, declared: set[Buffer]) -> list[str]:
        """Declare the pointer to what one run of a loop gives of a result, before its first use in a block."""
        if b in declared or b.row is None:
            return []
        outer = self._row(b.row[0].root, declared)
        declared.add(b)
        whole, number = (self.places[x.root] for x in b.row)
        start = f"{whole} + {number}[0] * ({self.i.size(b.elements)})"
        return [*outer, f"    {storage(b.dtype)} *const {self.places[b]} = {start};"]

    def _branch(self, step: Branch, declared: set[Buffer]) -> list[str]:
        then, otherwise = (self._block(b.steps, b.constraints, declared) for b in (step.then, step.otherwise))
        head = f"    if ({self.places[step.condition.root]}[0]) {{ {remark(_layers(step))}"
        return [head, *then, *(["    } else {", *otherwise] if otherwise else []), "    }"]

    def _scalar(self, b: Buffer) -> str:
        return f"{self.places[b.root]}[0]" if b.data is None else str(b.data.reshape(-1)[0])

    def _repeat(self, step: Repeat, declared: set[Buffer]) -> list[str]:
        number = self.places[step.number.root]
        run = self.names.of_model("run")
        holds = [] if step.count is None else [f"{run} < {self._scalar(step.count)}"]
        holds += [] if step.going is None else [f"{self.places[step.going.root]}[0]"]
        lines: list[str] = []
        start = [f"    {number}[0] = {run};"]
        if step.ran is not None:
            ran = self.places[step.ran.root]
            lines = [f"    {ran}[0] = 0;", *self.sizes.after([step.ran])]
            start += [f"    {ran}[0] = {run} + 1;", *self.sizes.after([step.ran])]
        lines.append(f"    for (int64_t {run} = 0; {' && '.join(holds)}; {run}++) {{ {remark(_layers(step))}")
        lines += [f"    {line}" for line in start]
        return [*lines, *self._block(step.body.steps, step.body.constraints, declared), "    }"]


def _written(step: Step) -> list[Buffer]:
    """List the root buffers that a step, or one inside of it, writes."""
    found: list[Buffer] = []
    for s in all_steps([step]):
        found += s.writes if isinstance(s, Function) else ()
        found += [s.ran] if isinstance(s, Repeat) and s.ran is not None else ()
    return list(dict.fromkeys(b.root for b in found))


def _layers(step: Branch | Repeat) -> str:
    return ", ".join(step.origin)


def clock(i: Interface, calls: int) -> str:
    """Print what a build for profiling adds: its clock, and the times that it notes."""
    if not i.profile:
        return ""
    p = i.prefix
    return f"""#include <time.h>

static int64_t {p}_times[{calls + 2}];
static int64_t {p}_latest;

const int64_t *{p}_profile(void) {{
    return {p}_times;
}}

/* Adds the time since the latest call to that of this place, the first of which is when the run began. */
static inline void {p}_stamp(int place) {{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    const int64_t time = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    if (place == 0) memset({p}_times, 0, sizeof {p}_times);
    {p}_times[place] += place == 0 ? time : time - {p}_latest;
    {p}_latest = time;
}}
"""


def _stamp(i: Interface, place: int) -> list[str]:
    return [f"    {i.prefix}_stamp({place});"] if i.profile else []


def _declare(i: Interface, b: Buffer, name: CName) -> str:
    """Declare the pointer to a buffer's memory."""
    c, p = storage(b.dtype), i.program
    for s in i.states:
        for root, first, second in ((s.current, s.at, s.swapped), (s.following, s.swapped, s.at)):
            if b is root and first is not None:
                where = i.address(first)
                if s.swapped is not None and second is not None:
                    where = f"(ctx->turn ? {i.address(second)} : {where})"
                return f"{c} *const {name} = ({c} *)(base + {where});"
    for k, x in enumerate(p.inputs):
        if x.root is b:
            return f"const {c} *const {name} = in[{k}];"
    if b.data is not None or b.where == "constant":
        assert b.data is not None, f"constant {b.name} has no data"
        pointer = i.weights.pointer(b.data, b.dtype)
        return f"const {c} *const {name} = {_cast(pointer, f'const {c} *') if not i.weights.embedded else pointer};"
    if b.where == "output":
        k = next(k for k, o in enumerate(p.outputs) if o.root is b)
        return f"{c} *const {name} = out[{k}];"
    return f"{c} *const {name} = ({c} *)(base + {i.address(i.arena + i.plan.offsets[b])});"


def _cast(pointer: str, c_type: str) -> str:
    return f"({c_type})({pointer})" if " " in pointer else f"({c_type}){pointer}"


def _copies(i: Interface, places: dict[Buffer, CName]) -> list[str]:
    """Copy outputs that are not written in place (a second name, an input, a constant), and states without a turn."""
    lines: list[str] = []
    direct: set[Buffer] = set()
    for k, o in enumerate(i.program.outputs):
        if o.root.where == "output" and o.root not in direct:
            direct.add(o.root)
        else:
            lines.append(f"    memcpy(out[{k}], {places[o.root]}, {bytes_text(i, o.bytes)});")
    for s in _copy_order([s for s in i.states if s.swapped is None and s.following is not s.current]):
        lines.append(f"    memcpy(base + {i.address(s.at)}, {places[s.following]}, {bytes_text(i, s.current.bytes)});")
    return lines


def _copy_order(states: list[State]) -> list[State]:
    """Order copies so that a state whose next value is another's current one goes before that one changes."""
    left, found = list(states), list[State]()
    while left:
        free = [s for s in left if not any(o is not s and o.following is s.current for o in left)]
        if not free:
            raise ValueError("states that exchange their values need a copy between them")
        found.append(free[0])
        left.remove(free[0])
    return found


def _output_sizes(i: Interface) -> list[str]:
    sizes = [d for o in i.program.outputs for d in o.shape]
    if not sizes:
        return []
    rows = [f"        out_dims[{k}] = {i.size(d)};" for k, d in enumerate(sizes)]
    return ["    if (out_dims) {", *rows, "    }"]
