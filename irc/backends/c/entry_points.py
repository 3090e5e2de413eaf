"""The P_* functions of a compiled model but P_run: sizes are checked, memory is prepared and planned."""

from __future__ import annotations

from irc.backends.c.function import Signature, broken
from irc.backends.c.interface import Interface, bytes_text
from irc.backends.c.run import clock, refuse_other_memory, run
from irc.backends.c.run_sizes import needed, refusals
from irc.backends.c.sizes import largest
from irc.diagnostics.codes import runtime
from irc.ir.dim import Dim, Symbol


def entry_points(i: Interface, calls: list[Signature]) -> str:
    """Print the P_* functions."""
    parts = [_context_size(i), _init(i), _reset(i), _plan(i), needed(i), clock(i, len(calls)), run(i, calls)]
    cold = "" if i.is_static else _COLD
    return "\n".join(part for part in (cold, _check(i), *parts) if part)  # P_check last: it checks what these compute


_COLD = """/* Functions that run once for each shape: their code is small, and compiles faster. */
#ifdef __GNUC__
#define IRC_COLD __attribute__((cold))
#else
#define IRC_COLD
#endif
"""


def _cold(i: Interface) -> str:
    return "" if i.is_static else "IRC_COLD "


def _check(i: Interface) -> str:
    if i.is_static:
        return ""
    p, lines, bounds = i.prefix, list[str](), i.symbols()
    for symbol, name in i.parameters.items():
        s = bounds.get(symbol, Symbol(symbol))
        lines.append(f"    if ({name} < {s.lo} || {name} > {largest(s)}) return {i.status(runtime.SIZE_OUT_OF_RANGE)};")
    sizes, known = i.checked_sizes(), i.program.known  # what is not known yet, P_run checks
    constraints = [c for c in i.program.constraints if all(map(known, c.relation.dims()))]
    checks = refusals(i, sizes, constraints, filter(known, i.doubtful_sizes()))
    lines += [part for line in (*sizes.lines, *checks) for part in _folded(line)]
    given = i.load_sizes("dims", set(i.parameters))
    head = f"IRC_COLD static enum {p}_status {p}_check(const int64_t *dims) {{"
    return "\n".join([head, *given, *lines, f"    return {i.ok};", "}"]) + "\n"


def _folded(line: str) -> list[str]:
    """Break a line of a function's body into several if it is long."""
    first, *rest = broken(line.strip(), 112)
    return [f"    {first}", *(f"        {part}" for part in rest)]


def _used(*dims: Dim) -> set[str]:
    return {s.name for d in dims for s in d.symbols()}


def _context_size(i: Interface) -> str:
    p = i.prefix
    lines = [f"{_cold(i)}size_t {p}_context_size(const int64_t *dims) {{"]
    if i.is_static:
        lines += ["    (void)dims;"]
    else:
        lines += [f"    if (!dims || {p}_check(dims)) return 0;", *i.load_sizes("dims", _used(i.total))]
    total, sizes = i.total + i.header, i.sizes()
    text = str(int(total)) if total.is_const else f"(size_t)({sizes.text(total)})"
    return "\n".join([*lines, *sizes.lines, f"    return {text};", "}"]) + "\n"


def _init(i: Interface) -> str:
    p, misaligned = i.prefix, i.status(runtime.MEMORY_MISALIGNED)
    lines = [_SYSCALL] if _uses_tiles(i) else []
    lines.append(f"enum {p}_status {p}_init({p}_ctx *ctx, const void *weights, const irc_pool *pool) {{")
    lines.append(f"    if (!ctx || (uintptr_t)ctx % 64) return {misaligned};")
    if i.weights.size and not i.weights.embedded:
        lines.append(f"    if (!weights || (uintptr_t)weights % 64) return {misaligned};")
    if _uses_tiles(i):
        lines += ["#ifdef __linux__", f"    if (syscall(158, 0x1023L, 18L)) return {i.status(runtime.TILES_REFUSED)};"]
        lines += ["#endif"]
    lines += ["    memset(ctx, 0, sizeof *ctx);", "    ctx->pool = pool;", "    ctx->weights = weights;"]
    if i.is_static:
        lines.append("    ctx->ready = irc_planned;")
    else:
        lines.append("    ctx->ready = irc_fresh;")
    if i.states and not _moving_states(i):
        lines.append(f"    {p}_reset(ctx);")
    return "\n".join([*lines, f"    return {i.ok};", "}"]) + "\n"


_SYSCALL = """/* A process may use AMX when it has asked for it: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA). */
#ifdef __linux__
long syscall(long number, ...);
#endif"""


def _uses_tiles(i: Interface) -> bool:
    return any("amx_tile" in k.features for k in i.unit.kernels.values())


def _moving_states(i: Interface) -> bool:
    return not i.arena.is_const


def _reset(i: Interface) -> str:
    p = i.prefix
    lines = [f"void {p}_reset({p}_ctx *ctx) {{"]
    if not i.states:
        return "\n".join([*lines, "    (void)ctx;", "}"]) + "\n"
    if _moving_states(i):
        lines.append("    if (!ctx || ctx->ready != irc_planned) return;")
        lines += i.load_sizes("ctx->dims", _used(*(s.current.bytes for s in i.states)))
    lines += ["    uint8_t *const base = (uint8_t *)ctx;", "    ctx->turn = 0;"]
    for s in i.states:
        place, size = f"base + {i.address(s.at)}", bytes_text(i, s.current.bytes)
        if s.initial is None:
            lines.append(f"    memset({place}, 0, {size});")
        else:
            lines.append(f"    memcpy({place}, {i.weights.pointer(s.initial, s.current.dtype)}, {size});")
    return "\n".join([*lines, "}"]) + "\n"


def _plan(i: Interface) -> str:
    p = i.prefix
    lines = [f"{_cold(i)}enum {p}_status {p}_plan({p}_ctx *ctx, const int64_t *dims) {{"]
    if i.is_static:
        return "\n".join([*lines, "    (void)dims;", *refuse_other_memory(i), f"    return {i.ok};", "}"]) + "\n"
    lines += [
        f"    if (!dims) return {i.status(runtime.SIZE_OUT_OF_RANGE)};",
        f"    const enum {p}_status error = {p}_check(dims);",
    ]
    lines += ["    if (error) return error;", *refuse_other_memory(i)]
    lines += i.load_sizes("dims", _used(*i.slots))
    if _moving_states(i):
        changed = "const int changed = ctx->ready != irc_planned || memcmp(ctx->dims, dims, sizeof ctx->dims) != 0;"
        lines.append(f"    {changed}")
    lines.append("    memcpy(ctx->dims, dims, sizeof ctx->dims);")
    sizes = i.sizes()
    offsets = [f"    ctx->at[{k}] = {sizes.next(d + i.header, f'ctx->at[{k}]')};" for d, k in i.slots.items()]
    lines += [*sizes.lines, *offsets]
    lines.append("    ctx->ready = irc_planned;")
    if _moving_states(i):
        lines.append(f"    if (changed) {p}_reset(ctx); /* the state's own sizes may have changed */")
    return "\n".join([*lines, f"    return {i.ok};", "}"]) + "\n"
