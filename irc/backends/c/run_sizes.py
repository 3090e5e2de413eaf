"""Sizes that P_run learns on its way: where they are read, and what must hold before they are used.

Behind the function that computes it, each becomes a local variable.  Memory was planned for its upper bound, so a
larger one ends the run; so does one that breaks a constraint on sizes, which P_check could not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from irc.backends.c.sizes import CheckedSizes, Sizes, dim_text
from irc.backends.c.text import CName, remark
from irc.diagnostics.codes import runtime
from irc.ir.dim import Dim, Factors, Symbol
from irc.ir.relation import SizeConstraint
from irc.loops.ir import Branch, Buffer, Repeat, RunSize

if TYPE_CHECKING:
    from irc.backends.c.interface import Interface

NEEDED_DECLARATION = """
/* Writes to `dims` with which sizes to call P_context_size and P_plan after P_run has returned 6108: what the sizes are
 * now, and what the run found that one of them must at least be. */
P_PUBLIC void P_needed(const P_ctx *ctx, int64_t *dims);
"""


def refusals(i: Interface, sizes: Sizes, constraints: Iterable[SizeConstraint], doubtful: Iterable[Dim]) -> list[str]:
    """Print the checks of constraints on sizes, then of sizes that may be negative."""
    lines: list[str] = []
    for constraint in constraints:
        lines.append(f"    {remark(f'{constraint.where}: {constraint.message}')}")
        never = constraint.relation.decide() is False
        fails = "" if never else constraint.relation.text(sizes.text, {"and": "&&", "or": "||"}, negated=True)
        lines.append(f"    {'' if never else f'if ({fails}) '}return {i.status(constraint.code)};")
    negative = i.status(runtime.SIZE_NEGATIVE)
    return lines + [f"    if ({sizes.text(d)} < 0) return {negative};" for d in doubtful]


class RunSizes:
    """The lines of P_run that define sizes, for one program.  `places` names the pointers to buffers.

    A size that a block computes again, as a loop does, is settled behind the last step that does.
    """

    def __init__(self, interface: Interface, places: dict[Buffer, CName]) -> None:
        self.i, self.places = interface, places
        program = interface.program
        self.again = any(isinstance(step, Branch | Repeat) for step in program.steps)
        """Whether sizes are variables, which several steps may set."""
        self.assigned = {*program.symbols}
        self.settled = {*program.symbols}
        self.read: set[Buffer] = set()  # the root buffers that sizes were read from
        self.constraints: list[SizeConstraint] = []
        self.doubtful = [d for d in interface.doubtful_sizes() if not program.known(d)]
        self.checked = CheckedSizes(
            interface.unit.symbols,
            interface.unit.names.taken,
            interface.unit.helper,
            interface.status(runtime.MODEL_TOO_LARGE),
        )

    def declarations(self) -> list[str]:
        """Print the variables of sizes, if several steps may set one."""
        names = dict.fromkeys(self.i.unit.symbols[s.symbol.name] for s in self.i.program.sizes)
        return [f"    int64_t {name} = 0;" for name in names] if self.again else []

    @contextmanager
    def block(self, constraints: Sequence[SizeConstraint], written: Sequence[Buffer]) -> Iterator[list[str]]:
        """Enter a block of steps with these constraints, which writes these buffers.

        Yields the lines of what can be checked at its start.
        """
        before = self.assigned, self.settled, self.constraints
        own = {s.symbol.name for s in self._among(written) if s.buffer.root not in self.read}
        self.assigned, self.settled = set(self.assigned), self.assigned - own
        self.constraints = list(constraints)
        yield list(self._constraints())
        self.assigned, self.settled, self.constraints = before

    def after(self, written: Sequence[Buffer] | None) -> list[str]:
        """Print the sizes that are known once these buffers are written; None: before the first function."""
        here = self._among(written)
        self.read |= {s.buffer.root for s in here}
        lines = [line for s in here for line in self._define(s)]
        self.assigned |= {s.symbol.name for s in here}
        return [*lines, *self._factors(here)]

    def settle(self, written: Sequence[Buffer] | None) -> list[str]:
        """Print what can be checked when the sizes in these buffers change no more in this block."""
        here = self._among(written)
        self.assigned |= {s.symbol.name for s in here}
        self.settled |= {s.symbol.name for s in here}
        return list(self._constraints()) if here else []

    def guard(self, s: RunSize) -> list[str]:
        """Print a check that what stands in a buffer may become the value of the symbol."""
        return list(self._refuse(f"{self.places[s.buffer.root]}[0]", s.symbol))

    def _among(self, written: Sequence[Buffer] | None) -> list[RunSize]:
        sizes = self.i.program.sizes
        if written is None:
            return [s for s in sizes if s.buffer.root.where in ("input", "constant")]
        roots = {b.root for b in written}
        return [s for s in sizes if s.buffer.root in roots]

    def _define(self, s: RunSize) -> Iterator[str]:
        name = self.i.unit.symbols[s.symbol.name]
        kind = "" if self.again else "const int64_t "
        yield f"    {kind}{name} = {self.places[s.buffer.root]}[0]; {remark(s.value)}"
        yield from self._refuse(name, s.symbol)

    def _refuse(self, name: str, symbol: Symbol) -> Iterator[str]:
        """Print the checks of a value that a symbol has, or will have."""
        i = self.i
        yield f"    if ({name} < 0) return {i.status(runtime.SIZE_NEGATIVE)};"
        beyond = i.status(runtime.SIZE_BEYOND_BOUND)
        if symbol.name in i.limits:
            place = i.limits[symbol.name]
            yield f"    if ({name} > ctx->dims[{place}]) {{"
            yield f"        ctx->beyond = {place};"
            yield f"        ctx->needed = {name};"
            yield f"        return {beyond};"
            yield "    }"
        else:
            most = i.program.capacity.of(Dim({(symbol,): 1}))
            yield f"    if ({name} > {self._planned(most)}) return {beyond};"

    def _planned(self, size: Dim) -> str:
        """Print a size over what P_plan was given, where a computed one stands for its bound."""
        i = self.i

        def symbol(name: str) -> str:
            return f"ctx->dims[{i.limits[name]}]" if name in i.limits else i.unit.symbols[name]

        return dim_text(size, symbol, i.unit.helper)

    def _factors(self, here: Sequence[RunSize]) -> Iterator[str]:
        """Make sure of the products that partial results rely on."""
        groups: dict[Factors, list[Symbol]] = {}
        for s in self.i.program.sizes:
            if s.symbol.among is not None and s.symbol.name in self.assigned:
                groups.setdefault(s.symbol.among, []).append(s.symbol)
        new = {s.symbol.among for s in here}
        for among, symbols in groups.items():
            if among in new and len(symbols) > 1:
                factors = " * ".join(f"{self.i.unit.helper('factor')}({self.i.unit.symbols[s.name]})" for s in symbols)
                most = self._planned(self.i.program.capacity.of(Dim({(symbols[0],): 1})))
                yield f"    if ({factors} > (double)({most})) return {self.i.status(runtime.SIZE_BEYOND_BOUND)};"

    def _constraints(self) -> Iterator[str]:
        """Check what could not be checked before: constraints, then sizes that would be negative."""
        ready = [d for d in self.constraints if all(s.name in self.settled for s in d.symbols())]
        self.constraints = [d for d in self.constraints if d not in ready]
        sure = [d for d in self.doubtful if all(s.name in self.settled for s in d.symbols())]
        self.doubtful = [d for d in self.doubtful if d not in sure]
        checks = refusals(self.i, self.checked, ready, sure)
        lines, self.checked.lines = self.checked.lines, []
        yield from (*lines, *checks)


def needed(i: Interface) -> str:
    """Print P_needed, if the interface has bounds of computed sizes."""
    if not i.limits:
        return ""
    return f"""void {i.prefix}_needed(const {i.prefix}_ctx *ctx, int64_t *dims) {{
    memcpy(dims, ctx->dims, sizeof ctx->dims);
    if (ctx->needed > dims[ctx->beyond]) dims[ctx->beyond] = ctx->needed;
}}
"""
