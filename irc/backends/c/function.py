"""Printing of Loop IR's statements as C functions.

One `Function` becomes one static C function; the body of a parallel loop that is worth it becomes a
function of its own, which the thread pool calls with a range of iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from irc.backends.c.comments import describe
from irc.backends.c.conversions import Conversion, conversion_of
from irc.backends.c.expr import ANYTHING, Printer, Range
from irc.backends.c.kernel_text import KernelNames
from irc.backends.c.names import Names, stem
from irc.backends.c.near_loops import near_first, questions
from irc.backends.c.sizes import dim_text, upper_bound
from irc.backends.c.text import CName
from irc.backends.c.types import register, storage
from irc.backends.c.wide_loops import wide
from irc.expr import Bin, Const, Expr, Load, Var, constant_of
from irc.ir.dim import INF, Dim
from irc.ir.types import i64
from irc.kernels.core.text import Part
from irc.loops.ir import Alloc, Assign, Buffer, For, Function, If, KernelCall, Let, Own, Stmt, Store, names_in, walk
from irc.loops.parallel_nests import ParallelNest, apart, elementwise, nest_of
from irc.loops.work import evaluations, written_again

PARALLEL_WORK = 32768
"""Element operations below which a loop is not worth waking threads for."""
LARGEST_INDEX = 1 << 40
"""What sizes that loops count to may be at most: index arithmetic on a few of them stays within 64 bits."""
_LINE = 116


class Kernel(Protocol):
    """A generated kernel, as in `KernelCall.kernel`.

    `symbol` is its C name (one for each signature), `declaration()` its struct of arguments and its prototype,
    `parts()` its definition and the pieces that it shares with other kernels; `description`, lines, says what it
    computes.  `call(values)` is the call as an expression (its beginning, what stands between commas, its end):
    `values` are the pointers read, written and scratch, then the sizes, and `pool` is in scope.  irc_pool is declared
    before all of it.
    `has_workspaces`, `own_bytes`: what `irc.loops.workspaces` asks.
    `features`: what the processor must have that the operating system may refuse, as in /proc/cpuinfo.
    """

    @property
    def symbol(self) -> str: ...
    @property
    def features(self) -> frozenset[str]: ...
    def declaration(self) -> str: ...
    @property
    def description(self) -> Sequence[str]: ...
    def parts(self) -> Sequence[Part]: ...
    def call(self, values: Sequence[str]) -> tuple[str, Sequence[str], str]: ...


@dataclass
class Unit:
    """What the functions of a program share; `helpers` and `functions` are those of the function being printed.

    `threads`: whether loops are divided among those of a pool.  `vectors`: whether there are some; `wide`: of 512 bits.

    `sizes` are all that the functions compute, `counts` those of them that are taken to be at most LARGEST_INDEX:
    P_check has to see to both.
    """

    prefix: CName
    symbols: dict[str, CName]  # symbol → C name, in the order of the interface
    names: Names
    threads: bool = True
    vectors: bool = True
    wide: bool = False
    helpers: set[str] = field(default_factory=set[str])
    kernels: dict[str, Kernel] = field(default_factory=dict[str, Kernel])
    functions: list[str] = field(default_factory=list[str])
    sizes: dict[Dim, None] = field(default_factory=dict[Dim, None])
    counts: dict[Dim, None] = field(default_factory=dict[Dim, None])

    def __post_init__(self) -> None:
        self.kernel_names = KernelNames(self.prefix, self.names)

    def helper(self, name: str) -> str:
        self.helpers.add(name)
        return f"irc_{name}"

    def add_kernel(self, kernel: Kernel) -> None:
        """Make a kernel one of the program's, unless an equal one is."""
        self.kernels.setdefault(kernel.symbol, kernel)
        self.kernel_names.add(kernel.symbol)


@dataclass(frozen=True)
class Local:
    """A C variable in scope."""

    name: CName
    c_type: str
    range: Range = ANYTHING
    mutable: bool = False


@dataclass
class Signature:
    """The C of a group: how `run` calls it, its static definition, and the helpers that needs.

    numbers: literals that it is given.  loops: whether it has some, and does more than call kernels.
    """

    name: CName
    buffers: list[Buffer]
    symbols: list[str]
    pool: bool
    prototype: str
    numbers: Sequence[str] = ()
    text: str = ""
    helpers: frozenset[str] = frozenset()
    loops: bool = False


class Frame:
    """The C function being printed: what it declares, and what it takes from outside."""

    def __init__(self, unit: Unit, function: Function, names: Names, parent: Frame | None = None) -> None:
        self.unit, self.function, self.names, self.parent = unit, function, names, parent
        self.lines: list[str] = []
        self.depth = 1
        self.scope: dict[str, Local] = {}
        self.locals: dict[Buffer, CName] = {}
        self.pointers: dict[Buffer, CName] = {}
        self.captured: dict[str, Local] = {}
        self.symbols: set[str] = set()
        self.hoisted: dict[CName, str] = {}  # name → declaration
        self.pool = False
        self.owned: Own | None = None
        self.shared: dict[Any, CName] = parent.shared if parent else {}
        self.written: set[Buffer] = parent.written if parent else _written(function)
        self.aliased: set[Buffer] = parent.aliased if parent else set()
        self.titles: dict[Buffer, str] = parent.titles if parent else {}
        self.name: CName = parent.name if parent else unit.names.within(unit.prefix, function.name)
        self.parts: list[int] = parent.parts if parent else [0]
        self.print = Printer(self)

    # ---------------------------------------------------------------- Scope
    def variable(self, var: Var) -> CName:
        return self.find(var.name).name

    def find(self, name: str) -> Local:
        if name in self.scope:
            return self.scope[name]
        if self.parent is None:
            raise KeyError(f"{self.function.name}: {name} is used before it is declared")
        found = self.parent.find(name)
        if found.mutable:
            raise ValueError(f"{self.function.name}: a parallel loop changes or reads the accumulator {name}")
        self.captured.setdefault(found.name, found)
        return found

    def range_of(self, var: Var) -> Range:
        return self.find(var.name).range

    def pointer(self, buffer: Buffer) -> CName:
        root = buffer.root
        if root in self.locals:
            return self.locals[root]
        if self.parent is not None:
            name = self.parent.pointer(root)
        else:
            name = self.shared.get(root) or self.names.of_model(self.titles.get(root, root.name))
            self.shared[root] = name
        self.pointers.setdefault(root, name)
        return name

    def size(self, dim: Dim) -> str:
        """Name a size: a symbol, or a constant at the head of the function."""
        text = dim_text(dim, self.symbol, self.helper)
        if text.isidentifier():
            return text
        self.unit.sizes[dim] = None
        name = self.shared.get(dim) or self.names.own("n", numbered=True)
        self.shared[dim] = name
        self.hoisted.setdefault(name, f"int64_t {name} = {text}")
        return name

    def amount(self, dim: Dim) -> str:
        """Print a size: a constant itself, or its name."""
        return str(int(dim)) if dim.is_const else self.size(dim)

    def limit(self, value: Const, kind: str) -> str:
        """Print a floating point constant: where there are vectors, by a name that hides it from the C compiler."""
        text = self.print.text(value)
        if not self.unit.vectors:
            return text
        key = (kind, text)
        name = self.shared.get(key) or self.names.own("limit", numbered=True)
        self.shared[key] = name
        c_type = "double" if kind == "f64" else "float"
        self.hoisted.setdefault(name, f"{c_type} {name} = {self.helper(f'hidden_{kind}')}({text})")
        return name

    def size_range(self, dim: Dim) -> Range:
        """Return the bounds of a size, which P_check ensures."""
        lo, hi = dim.bounds()[0], upper_bound(dim)
        if hi > LARGEST_INDEX and not dim.is_const:
            self.unit.counts[dim] = None
            return lo, LARGEST_INDEX
        return lo, hi

    def symbol(self, name: str) -> CName:
        self.symbols.add(name)
        return self.unit.symbols[name]

    def helper(self, name: str) -> str:
        return self.unit.helper(name)

    # ---------------------------------------------------------------- writing
    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text if text else "")

    def long(self, text: str) -> None:
        """Print a statement, over several lines if it is long."""
        first, *rest = broken(text, _LINE - 4 * self.depth)
        self.line(first)
        for part in rest:
            self.line(f"    {part}")

    def declare(self, var: Var, c_type: str, found: Range = ANYTHING, mutable: bool = False) -> CName:
        base = stem(var.name)
        key = ("var", var.name)
        if key not in self.shared:
            self.shared[key] = self.names.own(base, numbered=base != var.name)
        name = self.shared[key]
        self.scope[var.name] = Local(name, c_type, found, mutable)
        return name

    def block(self, stmts: list[Stmt]) -> None:
        """Print statements one level in, with a scope of their own."""
        scope, local = dict(self.scope), dict(self.locals)
        self.depth += 1
        for k, s in enumerate(stmts):
            self.statement(s, stmts[k + 1 :])
        self.depth -= 1
        self.scope, self.locals = scope, local

    def statement(self, s: Stmt, rest: list[Stmt]) -> None:
        match s:
            case For():
                self.loop(s, rest)
            case Store():
                place = f"{self.pointer(s.buffer)}[{self.print.position(s.buffer.shape, s.index)}]"
                self.assignment(place, s.value, self.print.stored(s.value, s.buffer.dtype))
            case Let():
                self.let(s, rest)
            case Assign():
                self.assignment(self.variable(s.var), s.value, self.print.text(s.value))
            case If():
                self.branch(s)
            case Alloc():
                self.alloc(s)
            case KernelCall():
                self.kernel(s)
            case _:
                raise TypeError(f"not a Loop IR statement: {type(s).__name__}")

    def alloc(self, s: Alloc) -> None:
        name = self.locals[s.buffer] = self.names.of_model(s.buffer.name)
        kind = storage(s.buffer.dtype)
        if s.own is None:
            self.line(f"_Alignas(64) {kind} {name}[{max(int(s.buffer.elements), 1)}];")
            return
        at = f" + {s.own.at}" if s.own.at else ""
        self.line(f"{kind} *restrict const {name} = ({kind} *)(void *)({self.own(s.own)}{at});")

    def own(self, own: Own) -> str:
        """Name what the thread that runs this has of its own."""
        if self.parent is None:
            return self.pointer(own.buffer)
        self.owned = own
        return "own"

    def assignment(self, place: str, value: Expr, text: str) -> None:
        """Print `place = value;`, with += where possible."""
        if isinstance(value, Bin) and value.op in ("add", "mul") and value.dtype.name in ("f32", "f64", "u32", "u64"):
            sign = {"add": "+", "mul": "*"}[value.op]
            if text.startswith(f"{place} {sign} ") and isinstance(value.a, Load | Var):
                self.long(f"{place} {sign}= {self.print.text(value.b)};")
                return
        self.long(f"{place} = {text};")

    def let(self, s: Let, rest: list[Stmt]) -> None:
        if not s.mutable and s.var.name not in names_in(rest):
            return  # what read it was simplified away
        text = self.print.text(s.value)
        found = self.print.range(s.value) if s.var.dtype == i64 and not s.mutable else ANYTHING
        c_type = register(s.var.dtype)
        name = self.declare(s.var, c_type, found, s.mutable)
        self.long(f"{'' if s.mutable else 'const '}{c_type} {name} = {text};")
        if s.mutable and s.var.name not in names_in(rest):
            self.line(f"(void){name};")

    def branch(self, s: If) -> None:
        self.line(f"if ({self.print.text(s.cond)}) {{")
        self.block(s.then)
        if s.orelse:
            self.line("} else {")
            self.block(s.orelse)
        self.line("}")

    def kernel(self, s: KernelCall) -> None:
        """Print a call of a kernel: pointers read, written and scratch, then sizes."""
        self.unit.add_kernel(s.kernel)
        self.pool |= not s.alone
        starts = s.offsets or (Const(0, i64),) * len(s.reads + s.writes)
        places = zip((*s.reads, *s.writes), starts, strict=True)
        args = [self.pointer(b) + ("" if at == Const(0, i64) else f" + {self.print.text(at, 12)}") for b, at in places]
        args += [f"(void *){self.pointer(b)}" for b in s.scratch] + [self.print.text(e) for e in s.sizes]
        if s.own is not None and s.alone:
            args += [f"(char *){self.own(s.own)} + {s.own.at}", str(s.own.bytes - s.own.at), "1"]
        elif s.own is not None:
            args += [f"(char *){self.pointer(s.own.buffer)}", str(s.own.bytes), str(s.own.owners)]
        begin, given, end = s.kernel.call(args, "NULL" if s.alone else "pool")
        self.line(self.unit.kernel_names.rename(begin))
        for line in wrapped("", list(given), f"{end};", _LINE - 4 * self.depth):
            self.line(f"    {line.strip()}")

    # ---------------------------------------------------------------- loops
    def loop(self, s: For, rest: list[Stmt]) -> None:
        alone = s.kind == "parallel" or (s.kind == "simd" and self.depth == 1 and all(map(elementwise, s.body)))
        if alone and self.unit.threads and self.parent is None:
            for part in apart(s):
                self.alone(part, rest)
        else:
            self.serial(s)

    def alone(self, s: For, rest: list[Stmt]) -> None:
        """Print an outermost loop whose iterations are independent: divided among threads if it is worth it.

        Serial loops of the `rest` that write what it has written fetch it from the other threads' caches.
        """
        work, least, nest = evaluations([s]), written_again(s, rest) + PARALLEL_WORK, nest_of(s)
        if all(constant_of(x.extent) in (0, 1) for x in nest.loops):
            self.serial(s)
        elif work is None:
            self.parallel(nest, "1")
        elif not (work.is_const and least.is_const):
            self.parallel(nest, f"{self.amount(work)} >= {self.amount(least)}")
        elif int(work) >= int(least):
            self.parallel(nest, "1")
        else:
            self.serial(s)

    def serial(self, s: For, begin: str = "0", end: str = "") -> None:
        """Print a loop that one thread runs."""
        if found := questions(s):
            near_first(self, s, found, begin, end)
        else:
            self.simply(s, begin, end)

    def simply(self, s: For, begin: str, end: str) -> None:
        """Print a loop as one loop."""
        if found := conversion_of(s):
            self.conversion(s, found, begin, end or self.print.text(s.extent, 11))
            return
        if s.kind == "simd":
            self.line("IRC_SIMD")
        elif s.kind == "lanes":
            self.line("IRC_LANES")
        scope = dict(self.scope)
        self.opened(s, begin, end)
        self.block(s.body)
        self.line("}")
        self.scope = scope

    def opened(self, s: For, begin: str, end: str) -> None:
        """Print the head of a loop, and declare its variable."""
        hi = self.print.range(s.extent)[1]
        text = end or self.print.text(s.extent, 11)
        name = self.declare(s.var, "int64_t", (0, hi - 1 if hi < INF else LARGEST_INDEX))
        if text.isidentifier() or (isinstance(s.extent, Const) and not end):
            self.line(f"for (int64_t {name} = {begin}; {name} < {text}; ++{name}) {{")
        else:
            last = self.names.own(f"{name}_end")
            self.line(f"for (int64_t {name} = {begin}, {last} = {text}; {name} < {last}; ++{name}) {{")

    def conversion(self, s: For, found: Conversion, begin: str, end: str) -> None:
        """Print the call that does what the loop does."""
        scope = dict(self.scope)
        self.line("{")
        name = self.declare(s.var, "int64_t")
        self.line(f"    const int64_t {name} = {begin};")
        to, source = (f"&{self.pointer(b)}[{self.print.position(b.shape, i)}]" for b, i in (found.to, found.source))
        count = end if begin == "0" else f"{end} - {name}"
        self.long(f"    {self.helper(found.helper)}({to}, {source}, {count});")
        self.line("}")
        self.scope = scope

    def together(self, nest: ParallelNest) -> None:
        """Print loops inside one another over the iterations `begin` to `end` of all: whole runs of the innermost."""
        *outer, inner = nest.loops
        body: list[Stmt] = [*(let for before in nest.before for let in before), inner]
        scope, extent = dict(self.scope), self.print.text(inner.extent, 11)
        n, first, last = (self.names.own(x, numbered=True) for x in ("n", "first", "last"))
        self.line(f"for (int64_t {n} = begin; {n} < end;) {{")
        self.depth += 1
        places = [f"{n} / {extent}"]
        for s in reversed(outer[1:]):
            size = self.print.text(s.extent, 11)
            places[-1:] = [f"{places[-1]} % {size}", f"{places[-1]} / {size}"]
        for s, place, before in zip(outer, reversed(places), nest.before, strict=True):
            hi = self.print.range(s.extent)[1]
            name = self.declare(s.var, "int64_t", (0, hi - 1 if hi < INF else LARGEST_INDEX))
            self.line(f"const int64_t {name} = {place};")
            for let in before:
                self.let(let, body)
        self.line(f"const int64_t {first} = {n} % {extent};")
        self.line(f"const int64_t {last} = end - {n} < {extent} - {first} ? {first} + (end - {n}) : {extent};")
        self.serial(inner, str(first), str(last))
        self.line(f"{n} += {last} - {first};")
        self.depth -= 1
        self.line("}")
        self.scope = scope

    def parallel(self, nest: ParallelNest, worth: str) -> None:
        """Print loops as a function over a range of their iterations, and the call that runs it.

        worth: in C, whether the work is enough for several threads.
        """
        s = nest.loops[0]
        self.parts[0] += 1
        part = self.name.then(f"_part{self.parts[0]}")
        child = Frame(self.unit, self.function, self.names, self)
        if len(nest.loops) > 1:
            child.together(nest)
        else:
            child.serial(s, "begin", "end")
        fields = list(child.fields())
        text = " * ".join(self.print.text(x.extent, 12 if len(nest.loops) > 1 else 0) for x in nest.loops)
        child.emit_part(part, fields, [s])
        self.pool = True
        args = self.names.own("args", numbered=True)
        values = ", ".join(name for _, name in fields)
        if fields:
            self.line(f"{part}_args {args} = {{{values}}};")
        given = f"&{args}" if fields else "NULL"
        if child.owned is None:
            self.line(f"{self.helper('parallel')}(pool, {text}, {worth}, {part}, {given});")
            return
        own = child.owned
        memory = f"(char *){self.pointer(own.buffer)}, {own.bytes}, {own.owners}"
        self.long(f"{self.helper('parallel_own')}(pool, {text}, {worth}, {part}, {given}, {memory});")

    def fields(self) -> Iterator[tuple[str, CName]]:
        """Yield (C type, name) of everything that an outlined part uses from outside."""
        for root, name in self.pointers.items():
            yield self.pointer_type(root), name
        for found in self.captured.values():
            yield found.c_type, found.name
        for symbol, name in self.unit.symbols.items():
            if symbol in self.symbols:
                assert self.parent is not None
                self.parent.symbols.add(symbol)
                yield "int64_t", name

    def pointer_type(self, root: Buffer, restrict: bool = False) -> str:
        const = "" if root in self.written or root.where == "local" else "const "
        keyword = "restrict " if restrict and root not in self.aliased else ""
        return f"{const}{storage(root.dtype)} *{keyword}"

    def emit_part(self, part: CName, fields: list[tuple[str, CName]], body: list[Stmt]) -> None:
        members = " ".join(f"{t}{'' if t.endswith('*') else ' '}{n};" for t, n in fields)
        out = self.unit.functions
        if fields:
            out.append(f"typedef struct {{ {members} }} {part}_args;\n")
        own, whole = "char *own, " if self.owned else "", wide(body, self.unit.wide)
        head = [f"{whole}static void {part}(void *arg, {own}int64_t begin, int64_t end) {{"]
        if not fields:
            head.append("    (void)arg;")
        else:
            head.append(f"    const {part}_args *const args = arg;")
        types = {name: self.pointer_type(root, restrict=True) for root, name in self.pointers.items()}
        for c_type, name in fields:
            c_type = types.get(name, c_type)
            const = "const " if name not in types else ""
            head.append(f"    {const}{c_type}{'' if c_type.endswith(('*', ' ')) else ' '}{name} = args->{name};")
        out.append("\n".join([*head, *self.hoists(), *self.lines, "}"]) + "\n")

    def hoists(self) -> list[str]:
        return [f"    const {text};" for text in self.hoisted.values()]

    # ---------------------------------------------------------------- the whole
    def finish(self, numbers: Sequence[Var]) -> Signature:
        """Append the C function, which is given `numbers`, to those of its parts."""
        order = dict.fromkeys(b.root for b in (*self.function.reads, *self.function.scratch, *self.function.writes))
        buffers = [b for b in order if b in self.pointers] + [b for b in self.pointers if b not in order]
        symbols = [s for s in self.unit.symbols if s in self.symbols]
        params = [f"{self.pointer_type(b, restrict=True)}{self.pointers[b]}" for b in buffers]
        params += [f"int64_t {self.unit.symbols[s]}" for s in symbols]
        params += [f"{register(v.dtype)} {self.variable(v)}" for v in numbers]
        params += ["const irc_pool *pool"] * self.pool
        whole = wide(self.function.body, fast=False)
        head = wrapped(f"{whole}static void {self.name}(", params or ["void"], ")")
        prototype = "\n".join(head).removeprefix(whole).removeprefix("static ")
        head[-1] += " {"
        self.unit.functions.append("\n".join([*head, *self.hoists(), *self.lines, "}"]) + "\n")
        return Signature(self.name, buffers, symbols, self.pool, prototype)


def print_function(
    unit: Unit,
    function: Function,
    aliased: set[Buffer],
    titles: dict[Buffer, str] | None = None,
    groups: Sequence[Function] = (),
    numbers: Sequence[Var] = (),
) -> Signature:
    """Print one group, or several equal `groups` whose buffers have the names in `titles` and that are given what
    differs besides, `numbers`."""
    unit.functions.clear()
    unit.helpers.clear()
    names = Names(frozenset(unit.names.taken))
    frame = Frame(unit, function, names)
    frame.aliased, frame.titles = aliased, titles or {}
    frame.depth = 0
    for var in numbers:
        frame.declare(var, register(var.dtype))
    frame.block(function.body)
    found = frame.finish(numbers)
    found.text = f"{describe(function, frame.titles, groups)}\n" + "\n".join(unit.functions)
    found.helpers = frozenset(unit.helpers)
    found.loops = any(isinstance(s, For) for s in walk(function.body))
    return found


def wrapped(head: str, items: list[str], tail: str, width: int = _LINE) -> list[str]:
    """Join `head`, the items with commas, and `tail`, over several lines if it is long."""
    one = head + ", ".join(items) + tail
    if len(one) <= width:
        return [one]
    lines, indent = [head], " " * 8
    for k, item in enumerate(items):
        text = item + (", " if k + 1 < len(items) else tail)
        if len(lines[-1]) + len(text) > width:
            lines[-1] = lines[-1].rstrip()
            lines.append(indent)
        lines[-1] += text
    return lines


def broken(text: str, width: int) -> list[str]:
    """Break an expression statement into lines of at most about `width`, first before operators outside parentheses."""
    if len(text) <= width:
        return [text]
    places: list[tuple[int, int]] = []  # depth, position of a space that may become a line end
    depth = 0
    for k, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if c == " " and (text[k + 1] in "+-?:" or text[k + 1 : k + 3] in ("||", "&&", "* ", "/ ", "= ")):
            places.append((depth, k + 2 if text[k + 1 : k + 3] == "= " else k))
        elif c == " " and text[k - 1] == ",":
            places.append((depth, k))
    usable = [(d, k) for d, k in places if 20 < k <= width]
    if not usable:
        return [text]
    shallow = min(d for d, _ in usable)
    cut = max(k for d, k in usable if d == shallow)
    return [text[:cut].rstrip(), *broken(text[cut:].lstrip(), width - 4)]


def _written(function: Function) -> set[Buffer]:
    found: set[Buffer] = set()
    for s in walk(function.body):
        if isinstance(s, Store):
            found.add(s.buffer.root)
        elif isinstance(s, KernelCall):
            found.update(b.root for b in (*s.writes, *s.scratch))
        if isinstance(s, Alloc | KernelCall) and s.own is not None:
            found.add(s.own.buffer)
    return found
