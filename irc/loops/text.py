"""Functions of Loop IR as text, to read them: `irc explore` shows it beside the C."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from irc.expr import Bin, Bits, Call, Cast, Const, Expr, Load, Reduce, Select, Size, Un, Var
from irc.loops.ir import Alloc, Assign, Buffer, For, Function, If, KernelCall, Let, Stmt, Store

SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "and": "and", "or": "or",
    "bitand": "&", "bitor": "|", "bitxor": "^", "shl": "<<", "shr": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=",
}  # fmt: skip
PREFIXES = {"neg": "-", "not": "not ", "bitnot": "~"}
LONGEST = 4000
"""Characters of a line: expressions share parts, and written out they can grow without end."""


def function_text(function: Function) -> str:
    """Write a function: what it reads and writes, then its statements, two spaces a level."""
    head = [f"def {function.name}:"]
    head += [f"  reads  {declared(b)}" for b in function.reads]
    head += [f"  writes {declared(b)}" for b in function.writes]
    return "\n".join([*head, *_block(function.body, "  ")]) + "\n"


def declared(buffer: Buffer) -> str:
    """Write a buffer's name, type and place."""
    shape = ", ".join(map(str, buffer.shape))
    return f"{buffer.name}: {buffer.dtype.name}[{shape}] ({buffer.root.where})"


def _block(body: Sequence[Stmt], indent: str) -> Iterator[str]:
    for statement in body:
        yield from (line if len(line) <= LONGEST else f"{line[:LONGEST]} ..." for line in _lines(statement, indent))


def _lines(statement: Stmt, indent: str) -> Iterator[str]:
    inside = f"{indent}  "
    match statement:
        case For(var, extent, body, kind):
            yield f"{indent}for {var.name} in 0..{expression(extent)}:{'' if kind == 'serial' else f'  # {kind}'}"
            yield from _block(body, inside)
        case If(cond, then, orelse):
            yield f"{indent}if {expression(cond)}:"
            yield from _block(then, inside)
            if orelse:
                yield f"{indent}else:"
                yield from _block(orelse, inside)
        case Store(buffer, index, value):
            yield f"{indent}{_element(buffer, index)} = {expression(value)}"
        case Let(var, value, mutable):
            yield f"{indent}{'var' if mutable else 'let'} {var.name}: {var.type.name} = {expression(value)}"
        case Assign(var, value):
            yield f"{indent}{var.name} = {expression(value)}"
        case Alloc(buffer):
            yield f"{indent}local {declared(buffer)}"
        case KernelCall():
            reads, writes = (", ".join(b.name for b in part) for part in (statement.reads, statement.writes))
            yield f"{indent}{writes} = {statement.kernel.symbol}({reads})"
        case _:
            yield f"{indent}{statement}"


def expression(e: Expr) -> str:
    """Write an expression as Python would."""
    match e:
        case Const(value):
            return str(value)
        case Var(name):
            return name
        case Size(dim):
            return str(dim)
        case Load(buffer, index):
            return _element(buffer, index)
        case Cast(a, type):
            return f"{type.name}({expression(a)})"
        case Select(cond, a, b):
            return f"({expression(a)} if {expression(cond)} else {expression(b)})"
        case _:
            return _operation(e)


def _operation(e: Expr) -> str:
    match e:
        case Bin("min" | "max" | "pow" as op, a, b):
            return f"{op}({expression(a)}, {expression(b)})"
        case Bin(op, a, b):
            return f"{_inside(a)} {SIGNS[op]} {_inside(b)}"
        case Un("abs", a):
            return f"abs({expression(a)})"
        case Un(op, a):
            return f"{PREFIXES[op]}{_inside(a)}"
        case Call(fn, args):
            return f"{fn}({', '.join(map(expression, args))})"
        case Bits(a, type):
            return f"bits_{type.name}({expression(a)})"
        case Reduce(op, variables, extents, body):
            ranges = ", ".join(f"{v.name} in 0..{n}" for v, n in zip(variables, extents, strict=True))
            return f"{op}({expression(body)} for {ranges})"
        case _:
            raise TypeError(f"no expression: {e!r}")


def _inside(e: Expr) -> str:
    return f"({expression(e)})" if isinstance(e, Bin) and e.op not in ("min", "max", "pow") else expression(e)


def _element(buffer: Buffer, index: Sequence[Expr]) -> str:
    return f"{buffer.name}[{', '.join(map(expression, index))}]"
