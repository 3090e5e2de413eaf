# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownLambdaType=false
"""Interpreter that runs a `Program` on NumPy arrays, statement by statement: what the generated C must compute.

Slow, for tiny shapes: the oracle of lowering's tests.  Every index is checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any

import numpy as np

from irc.arrays import Array
from irc.expr import Bin, Bits, Call, Cast, Const, Expr, Load, Select, Size, Un, Var
from irc.ir.types import DType
from irc.kernels.core import reference
from irc.loops.ir import (
    Alloc,
    Assign,
    Branch,
    Buffer,
    For,
    Function,
    If,
    KernelCall,
    Let,
    Program,
    Repeat,
    Step,
    Stmt,
    Store,
)


def run(program: Program, inputs: Sequence[Array]) -> list[Array]:
    """Compute the outputs for the given inputs.

    Raises ValueError for a violated constraint, IndexError for an index out of range.
    """
    return Interpreter(program, inputs).run()


class Interpreter:
    def __init__(self, program: Program, inputs: Sequence[Array]) -> None:
        self.program = program
        self.sizes: dict[str, int] = {}
        self.shapes: dict[Buffer, tuple[int, ...]] = {}  # with the sizes that are known so far, as the next
        self.evaluators: dict[int, Callable[[], Any]] = {}  # of expressions of the program, by their identity
        self.memory: dict[Buffer, Array] = {}
        self.vars: dict[str, Any] = {}
        for buffer, array in zip(program.inputs, inputs, strict=True):
            self.memory[buffer] = np.asarray(array)
            for d, n in zip(buffer.shape, np.shape(array), strict=True):
                for symbol in d.symbols():
                    if str(d) == symbol.name:
                        self.sizes.setdefault(symbol.name, n)
        for constant in program.constants:
            assert constant.data is not None
            self.memory[constant] = constant.data

    def run(self) -> list[Array]:
        self._check(self.sizes.keys())
        with np.errstate(all="ignore"):
            self._define_sizes()
            self._steps(self.program.steps)
        return [self.array(b) for b in self.program.outputs]

    def _steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if isinstance(step, Function):
                self.function(step)
                self._define_sizes(step.writes)
            elif isinstance(step, Branch):
                taken = step.then if self._scalar(step.condition) else step.otherwise
                self._steps(taken.steps)
            elif isinstance(step, Repeat):
                self._repeat(step)

    def _repeat(self, step: Repeat) -> None:
        number = 0
        while (step.count is None or number < self._scalar(step.count)) and (
            step.going is None or self._scalar(step.going)
        ):
            self.array(step.number)[...] = number
            number += 1
            self._note_runs(step, number)
            self._steps(step.body.steps)
        self._note_runs(step, number)

    def _note_runs(self, step: Repeat, count: int) -> None:
        if step.ran is not None:
            self.array(step.ran)[...] = count
            self._define_sizes((step.ran,))

    def _scalar(self, buffer: Buffer) -> int:
        return int(self.array(buffer).reshape(-1)[0])

    def _define_sizes(self, buffers: Sequence[Buffer] | None = None) -> None:
        """Learn the sizes in buffers that were written; without them, those that inputs and constants say."""
        written = {b.root for b in buffers or ()}
        before = set(self.sizes)
        self.shapes.clear()
        self.evaluators.clear()
        for s in self.program.sizes:
            if s.buffer.root in written or (buffers is None and s.buffer.root.where in ("input", "constant")):
                self.sizes[s.symbol.name] = int(self.array(s.buffer).reshape(-1)[0])
        self._check(self.sizes.keys() - before)

    def _check(self, new: Collection[str]) -> None:
        """Check what sizes must fulfil once all of them are known, `new` being the latest."""
        for constraint in self.program.constraints:
            names = {s.name for s in constraint.symbols()}
            if names & set(new) and names <= self.sizes.keys() and not constraint.relation.holds(self.sizes):
                raise ValueError(constraint.message)

    def function(self, f: Function) -> None:
        self.vars.clear()
        self.block(f.body)

    def shape(self, buffer: Buffer) -> tuple[int, ...]:
        shape = self.shapes.get(buffer)
        if shape is None:
            shape = self.shapes[buffer] = tuple(d.evaluate(self.sizes) for d in buffer.shape)
        return shape

    def array(self, buffer: Buffer) -> Array:
        """Return the memory of a buffer, in the buffer's shape."""
        root, shape, start = buffer.root, self.shape(buffer), 0
        if root.row is not None:
            start = self._scalar(root.row[1]) * math.prod(shape)
            root = root.row[0].root
        end = start + math.prod(shape)
        if root not in self.memory:  # its own sizes may not be known yet
            self.memory[root] = _undefined(root.dtype, self.shape(root) if root is buffer else (end,))
        whole = self.memory[root]
        if whole.shape == shape and not start:
            return whole
        if whole.size < end:  # a size has grown since
            whole = np.concatenate([whole.reshape(-1), _undefined(root.dtype, (end - whole.size,))])
            self.memory[root] = whole
        view = whole.reshape(-1)[start:end].reshape(shape)
        assert np.shares_memory(view, whole) or not view.size
        return view

    # ----------------------------------------------------------------- statements
    def block(self, stmts: list[Stmt]) -> None:
        for s in stmts:
            self.statement(s)

    def statement(self, s: Stmt) -> None:
        match s:
            case For():
                for i in range(self.value(s.extent)):
                    self.vars[s.var.name] = i
                    self.block(s.body)
            case Store():
                index = self.index(s.buffer, tuple(self.value(i) for i in s.index))
                self.array(s.buffer)[index] = self.value(s.value)
            case Let() | Assign():
                self.vars[s.var.name] = self.value(s.value)
            case Alloc():
                self.memory[s.buffer] = _undefined(s.buffer.dtype, self.shape(s.buffer))
            case If():
                self.block(s.then if self.value(s.cond) else s.orelse)
            case KernelCall():
                self.kernel(s)
            case _:
                raise TypeError(f"{type(s).__name__} is no statement of Loop IR")

    def kernel(self, s: KernelCall) -> None:
        starts = [int(self.value(e)) for e in s.offsets] or [0] * len(s.reads + s.writes)
        memory = [self.array(b).reshape(-1)[at:] for b, at in zip((*s.reads, *s.writes), starts, strict=True)]
        sizes = dict(zip(s.kernel.sizes, (int(self.value(e)) for e in s.sizes), strict=True))
        reference.run(s.kernel, memory[: len(s.reads)], memory[len(s.reads) :], sizes)

    def index(self, buffer: Buffer, at: tuple[Any, ...]) -> tuple[int, ...]:
        """Check the place of an element."""
        found, shape = tuple(map(int, at)), self.shape(buffer)
        if len(found) != len(shape) or not all(0 <= i < n for i, n in zip(found, shape, strict=True)):
            raise IndexError(f"{found} of {buffer.name} {shape}")
        return found

    # ---------------------------------------------------------------- expressions
    def value(self, e: Expr) -> Any:
        return self.evaluator(e)()

    def evaluator(self, e: Expr) -> Callable[[], Any]:
        """Make the function that evaluates an expression, once for all iterations of the loops around it."""
        found = self.evaluators.get(id(e))
        if found is None:
            found = self.evaluators[id(e)] = self._evaluator(e)
        return found

    def _evaluator(self, e: Expr) -> Callable[[], Any]:
        match e:
            case Const():
                constant = _typed(e.value, e.type)
                return lambda: constant
            case Var():
                values, name = self.vars, e.name
                return lambda: values[name]
            case Size():
                return cache(lambda: e.dim.evaluate(self.sizes))
            case Load():
                at, typed = [self.evaluator(i) for i in e.index], e.dtype
                return lambda: _typed(self.array(e.buffer)[self.index(e.buffer, tuple([i() for i in at]))], typed)
            case Select():
                cond, a, b = self.evaluator(e.cond), self.evaluator(e.a), self.evaluator(e.b)
                return lambda: a() if cond() else b()
            case Cast():
                a, source = self.evaluator(e.a), e.a.dtype
                return lambda: _cast(a(), source, e.type)
            case Bits():
                a, source = self.evaluator(e.a), e.a.dtype
                return lambda: np.asarray(a()).astype(source.numpy).view(e.type.numpy)[()]
            case Un():
                a, result = self.evaluator(e.a), e.dtype
                return lambda: _unary(e.op, a(), result)
            case Bin():
                a, b, apply = self.evaluator(e.a), self.evaluator(e.b), _binary(e)
                return lambda: apply(a(), b())
            case Call():
                args = [self.evaluator(a) for a in e.args]
                return lambda: _call(e, [a() for a in args])
            case _:
                raise TypeError(f"{type(e).__name__} is no expression of Loop IR")


def _undefined(dtype: DType, shape: tuple[int, ...]) -> Array:
    """Make memory whose contents show where unwritten memory is read."""
    return np.full(shape, 77, dtype.numpy) if dtype.kind != "f" else np.full(shape, np.nan).astype(dtype.numpy)


def _typed(value: Any, dtype: DType) -> Any:
    if dtype.kind == "b":
        return bool(value)
    if dtype.is_integer:
        return _wrap(int(value), dtype)
    return dtype.numpy.type(value)


def _wrap(value: int, dtype: DType) -> int:
    signed = dtype.kind == "i"
    half = 1 << dtype.bits - 1
    if -half <= value < half and (signed or value >= 0):
        return value
    value &= 2 * half - 1
    return value - 2 * half if signed and value >= half else value


def _cast(value: Any, source: DType, target: DType) -> Any:
    if target.is_integer and source.is_float:
        return (
            int(np.asarray(value).astype(np.float64).astype(target.numpy))
            if target.bits >= 8
            else _wrap(int(value), target)
        )
    if target.is_float and source.is_float:
        return np.asarray(value).astype(target.numpy)[()]
    if target.is_float:
        return (
            np.asarray(int(value)).astype(target.numpy)[()]
            if abs(int(value)) < 1 << 63
            else target.numpy.type(float(value))
        )
    return _typed(value, target)


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
}


def _trunc_div(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _int_pow(a: int, b: int) -> int:
    return a**b if b >= 0 else (0 if abs(a) != 1 else a ** (b % 2))


_INTEGER: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": _trunc_div,
    "floordiv": lambda a, b: a // b if b else 0,
    "mod": lambda a, b: a % b if b else 0,
    "min": min,
    "max": max,
    "pow": _int_pow,
    "bitand": lambda a, b: a & b,
    "bitor": lambda a, b: a | b,
    "bitxor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b if 0 <= b < 64 else 0,
    "shr": lambda a, b: a >> b if 0 <= b < 64 else 0,
}
_FLOAT: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "min": np.minimum,
    "max": np.maximum,
    "pow": np.power,
}
_BOOLEAN: dict[str, Callable[[bool, bool], bool]] = {
    "add": lambda a, b: a or b,
    "mul": lambda a, b: a and b,
    "max": lambda a, b: a or b,
    "min": lambda a, b: a and b,
    "bitand": lambda a, b: a and b,
    "bitor": lambda a, b: a or b,
    "bitxor": lambda a, b: a != b,
}


def _wide(value: Any, dtype: DType) -> Any:
    return np.asarray(value).astype(dtype.compute.numpy)[()]


def _binary(e: Bin) -> Callable[[Any, Any], Any]:
    """Make the function of an operator's operands."""
    kind = e.a.dtype
    assert kind == e.b.dtype, f"{e.op} of {kind} and {e.b.dtype}"
    if e.op in _COMPARE:
        compare = _COMPARE[e.op]
        return lambda a, b: bool(compare(a, b))
    if kind.kind == "b":
        return _BOOLEAN[e.op]
    if kind.is_integer:
        whole = _INTEGER[e.op]
        return lambda a, b: _wrap(whole(a, b), kind)
    real = _FLOAT[e.op]
    if kind.compute == kind:
        return lambda a, b: kind.numpy.type(real(a, b))
    return lambda a, b: np.asarray(real(_wide(a, kind), _wide(b, kind))).astype(kind.numpy)[()]


def _unary(op: str, a: Any, dtype: DType) -> Any:
    if op == "not":
        return not a
    if dtype.is_integer:
        return _wrap({"neg": -a, "bitnot": ~a, "abs": abs(a)}[op], dtype)
    return {"neg": np.negative, "abs": np.abs}[op](a)


def _erf(x: Any) -> Any:
    return type(x)(math.erf(float(x)))


def _nearest_quotient(x: Any, y: Any, low: Any, high: Any) -> Any:
    found = np.rint(x / y)
    return min(found, high) if found > low else low  # NaN compares to nothing


def _extra(fn: Callable[[float], float]) -> Callable[[Any], Any]:
    return lambda x: type(x)(fn(float(x)))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "erf": _erf,
    "erfc": _extra(math.erfc),
    "lgamma": _extra(math.lgamma),
    "tgamma": _extra(math.gamma),
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "pow": np.power,
    "atan2": np.arctan2,
    "round": np.rint,
    "round_away": lambda x: np.copysign(np.floor(np.abs(x) + type(x)(0.5)), x),
    "nearest_quotient": _nearest_quotient,
    "rsqrt": lambda x: type(x)(1) / np.sqrt(x),
}


def _call(e: Call, args: list[Any]) -> Any:
    kind = e.args[0].dtype
    if e.dtype.kind == "b":
        return bool(getattr(np, e.fn)(_wide(args[0], kind)))
    if kind.is_integer:
        if e.fn == "pow":
            return _wrap(_int_pow(*args), kind)
        if e.fn == "fmod":
            return _wrap(args[0] - _trunc_div(*args) * args[1] if args[1] else 0, kind)
        return _wrap({"abs": abs, "sign": lambda x: (x > 0) - (x < 0)}.get(e.fn, int)(*args), kind)
    found = (_FUNCTIONS.get(e.fn) or getattr(np, e.fn))(*(_wide(a, kind) for a in args))
    return np.asarray(found).astype(kind.numpy)[()]
