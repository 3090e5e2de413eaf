"""Inputs and outputs of a compiled model, and the checks of a caller's arrays."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import numpy as np

from irc.arrays import Array, NumpyType
from irc.diagnostics.codes import runtime, runtime_io as codes
from irc.runtime.alignment import aligned_array
from irc.runtime.element_types import numpy_dtype
from irc.runtime.errors import InputTypeError, InputValueError, OutOfMemory, failure
from irc.runtime.foreign import shared

_SIZE_EXPRESSION = re.compile(r"(?:d\d+|\d+|floordiv|ceildiv|mod|min|max|==|<=|and|or|[-+*(), ])*")


LONGEST_SIZE = 1 << 17
"""Characters of a size expression."""
REMEMBERED = 256
"""Combinations of shapes whose check is not repeated."""


@dataclass(frozen=True)
class SymbolicSize:
    """A size that the arrays of a call decide; bounds inclusive, `hi` None if there is none."""

    name: str
    lo: int = 0
    hi: int | None = None


@dataclass(frozen=True)
class SizeConstraint:
    """A size constraint: an expression over the symbols d0, d1, …

    code: of a violation. message: what is wrong then. where: the place of the operation in the model.
    """

    holds: str
    code: str
    message: str
    where: str


def _floordiv(a: int, b: int) -> int:
    return a // b if b else 0


def _ceildiv(a: int, b: int) -> int:
    return -(-a // b) if b else 0


def _mod(a: int, b: int) -> int:
    return a % b if b else 0


_FUNCTIONS: dict[str, Any] = {
    "__builtins__": {},
    "mod": _mod,
    "ceildiv": _ceildiv,
    "floordiv": _floordiv,
    "min": min,
    "max": max,
}
"""Functions in size expressions; a division by 0 gives 0, as in generated C."""


def size_code(text: str) -> CodeType:
    """Compile a size expression, or a relation of some, over d0, d1, … Raises ValueError or SyntaxError."""
    if len(text) > LONGEST_SIZE or "**" in text or not _SIZE_EXPRESSION.fullmatch(text):
        raise ValueError(f"{text[:100]!r} is no size expression")
    return compile(text, "<size>", "eval")


def size_for(size: int | str | None, dims: Sequence[int]) -> int | None:
    """Evaluate a size expression for the values of the symbols; None stays None."""
    if not isinstance(size, str):
        return size
    return int(eval(size_code(size), _FUNCTIONS, {f"d{i}": d for i, d in enumerate(dims)}))


def _holds(relation: CodeType, space: dict[str, int]) -> bool:
    """Tell whether a relation holds; one without a value does not."""
    try:
        return bool(eval(relation, _FUNCTIONS, space))
    except ZeroDivisionError:
        return False


@dataclass(frozen=True)
class Port:
    """An input or output.

    `shape` has ints and the names (or expressions) of symbolic sizes; None where the rank is unknown.
    `sizes` are the same as expressions over the model's symbols d0, d1, …; `kind` is tensor, sequence,
    optional or map, and `type` irc's spelling of the whole type.  `max_sizes`, of an output whose size only
    running tells, are the upper bounds its array is allocated with.
    """

    name: str
    dtype: NumpyType
    shape: tuple[int | str, ...] | None
    type: str = ""
    kind: str = "tensor"
    element: str = ""  # irc's name of the element type
    names: tuple[str, ...] = ()
    layer: str = ""
    sizes: tuple[int | str, ...] | None = None
    max_sizes: tuple[int | str, ...] | None = None
    codes: tuple[int | CodeType, ...] = field(default=(), repr=False, compare=False)

    @staticmethod
    def of(row: dict[str, Any]) -> Port:
        """Read the port from a row of the manifest."""
        shape, sizes, most = row.get("shape"), row.get("sizes"), row.get("max_sizes")
        return Port(
            row["name"],
            numpy_dtype(row["dtype"]),
            None if shape is None else tuple(shape),
            row["type"],
            row["kind"],
            row["dtype"],
            tuple(row.get("names", ())),
            row.get("layer", ""),
            None if sizes is None else tuple(sizes),
            None if most is None else tuple(most),
            tuple(s if isinstance(s, int) else size_code(s) for s in most or sizes or ()),
        )

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape if it has numbers only, else None."""
        if self.sizes is None or any(isinstance(s, str) for s in self.sizes):
            return None
        return tuple(int(s) for s in self.sizes)

    @property
    def is_numeric_tensor(self) -> bool:
        """Whether an array of fixed memory can hold it."""
        return self.kind == "tensor" and self.dtype != object and self.shape is not None

    def shape_for(self, dims: Sequence[int]) -> tuple[int, ...]:
        """Compute the shape (its upper bound for a data-dependent one) for the values of the symbols."""
        space = {f"d{i}": d for i, d in enumerate(dims)}
        return tuple(c if isinstance(c, int) else int(eval(c, _FUNCTIONS, space)) for c in self.codes)

    def allocate(self, dims: Sequence[int]) -> Array:
        """Allocate an array for the values of the symbols. Raises OutOfMemory; InputValueError for a negative size."""
        shape = self.shape_for(dims)
        if min(shape, default=0) < 0:
            raise failure(runtime.SIZE_NEGATIVE, InputValueError)
        try:
            return aligned_array(shape, self.dtype)
        except (MemoryError, ValueError) as e:
            reason = f"the output {self.name!r} with the shape {list(shape)} could not be allocated"
            raise failure(codes.NO_MEMORY, OutOfMemory, reason=reason) from e

    def describe(self) -> str:
        """Spell the shape for a user."""
        return "[...]" if self.shape is None else "[" + ",".join(map(str, self.shape)) + "]"

    # ------------------------------------------------------------------- converting
    def array(self, value: Any, role: str) -> Array:
        """Take a tensor argument as an array of the declared element type; never converts the element type."""
        if self.dtype == object:
            return strings(value)
        if type(value) is not np.ndarray:
            value = np.asarray(shared(value, role, self.name))  # np.matrix has its own product
        array: Array = value
        if array.dtype != self.dtype:
            raise failure(
                codes.INPUT_TYPE,
                InputTypeError,
                role=role,
                name=self.name,
                wanted=str(self.dtype),
                given=str(array.dtype),
            )
        return array

    def value(self, value: Any, role: str) -> Any:
        """Prepare an argument of any kind for the model."""
        if self.kind == "tensor":
            return self.array(value, role)
        if value is None:
            if self.kind == "optional":
                return None
            raise failure(codes.INPUT_TYPE, InputTypeError, role=role, name=self.name, wanted=self.type, given="None")
        if self.kind == "map":
            return self._map(value, role)
        if "seq(" in self.type:
            if not isinstance(value, list | tuple):
                given = type(value).__name__
                raise failure(
                    codes.INPUT_TYPE, InputTypeError, role=role, name=self.name, wanted=self.type, given=given
                )
            return [x if x is None else self.array(x, role) for x in value]  # pyright: ignore[reportUnknownVariableType]
        return self.array(value, role)

    def _map(self, value: Any, role: str) -> dict[Any, Any]:
        """Take a map whose keys and values are of the declared types."""
        names = re.fullmatch(r"map\((\w+), (\w+)\[.*\]\)", self.type)
        key, kind = names.groups() if names else ("", "")
        found: dict[Any, Any] = dict(value) if isinstance(value, Mapping) else {None: None}  # pyright: ignore
        if not all(_is_of(k, key) and _is_of(v, kind) for k, v in found.items()):
            given = str(found)[:100] if isinstance(value, Mapping) else type(value).__name__
            raise failure(codes.INPUT_TYPE, InputTypeError, role=role, name=self.name, wanted=self.type, given=given)
        return found


def _is_of(value: Any, kind: str) -> bool:
    """Tell whether a key or a value of a map is of an element type."""
    if kind == "string":
        return isinstance(value, str)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return -(1 << 63) <= int(value) < 1 << 63  # pyright: ignore[reportUnknownArgumentType]
    return kind in ("f32", "f64") and isinstance(value, float | np.floating)


def strings(value: Any) -> Array:
    """Convert str, bytes, `U` and `S` arrays to an object array of str."""
    array = np.asarray(value, dtype=object)
    flat = [x.decode("utf-8") if isinstance(x, bytes) else x for x in array.reshape(-1)]
    if not all(isinstance(x, str) for x in flat):
        odd = next(type(x).__name__ for x in flat if not isinstance(x, str))
        raise failure(codes.INPUT_TYPE, InputTypeError, role="input", name="", wanted="string", given=odd)
    made = np.empty(len(flat), object)
    made[:] = flat
    return made.reshape(array.shape)


class ShapeCheck:
    """Compares the shapes of a call's arrays with the inputs, and yields the values of the symbols."""

    def __init__(
        self, inputs: Sequence[Port], symbols: Sequence[SymbolicSize], constraints: Sequence[SizeConstraint] = ()
    ) -> None:
        self.inputs, self.symbols = inputs, symbols
        self.constraints = [(d, size_code(d.holds)) for d in constraints]
        self.all_tensors = all(p.kind == "tensor" for p in inputs)
        self.known: dict[tuple[tuple[int, ...], ...], tuple[int, ...]] = {}  # shapes that fit
        self.simple: list[list[tuple[int, int | None, CodeType | None]]] = []
        for port in inputs:
            rows: list[tuple[int, int | None, CodeType | None]] = []
            for s in port.sizes or ():
                symbol = int(s[1:]) if isinstance(s, str) and re.fullmatch(r"d\d+", s) else None
                rows.append((s if isinstance(s, int) else -1, symbol, size_code(s) if isinstance(s, str) else None))
            self.simple.append(rows)

    def __call__(self, arrays: Sequence[Any]) -> tuple[int, ...]:
        """Compute the symbols' values. Raises ValueError with the names of inputs whose shapes do not fit."""
        if not self.all_tensors:
            return self._compare(arrays)
        shapes = tuple([a.shape for a in arrays])
        dims = self.known.get(shapes)
        if dims is None:
            dims = self._compare(arrays)
            if len(self.known) >= REMEMBERED:
                self.known.clear()
            self.known[shapes] = dims
        return dims

    def _compare(self, arrays: Sequence[Any]) -> tuple[int, ...]:
        dims: list[int | None] = [None] * len(self.symbols)
        where: list[str] = [""] * len(self.symbols)
        derived: list[tuple[Port, int, int, CodeType]] = []
        for port, rows, array in zip(self.inputs, self.simple, arrays, strict=True):
            if port.kind != "tensor" or port.shape is None:
                continue
            if array.ndim != len(rows):
                raise self._misfit(port, array)
            for axis, ((size, symbol, code), given) in enumerate(zip(rows, array.shape, strict=True)):
                if code is None:
                    if size != given:
                        raise self._misfit(port, array)
                elif symbol is None:
                    derived.append((port, axis, given, code))
                elif dims[symbol] is None:
                    dims[symbol], where[symbol] = given, f"axis {axis} of {port.name!r}"
                    self._in_range(symbol, given, where[symbol])
                elif dims[symbol] != given:
                    raise failure(
                        codes.SYMBOL_CONFLICT,
                        InputValueError,
                        symbol=self.symbols[symbol].name,
                        first=dims[symbol],
                        where_first=where[symbol],
                        second=given,
                        where_second=f"axis {axis} of {port.name!r}",
                    )
        self._check_derived(derived, dims)
        self._check_constraints(dims, where)
        return tuple(d or 0 for d in dims)

    def _check_constraints(self, dims: list[int | None], where: list[str]) -> None:
        space = {f"d{i}": d for i, d in enumerate(dims) if d is not None}
        for constraint, code in self.constraints:
            used = sorted({n for n in code.co_names if n not in _FUNCTIONS}, key=lambda n: int(n[1:]))
            if all(n in space for n in used) and not _holds(code, space):
                numbers = [int(n[1:]) for n in used]
                sizes = ", ".join(f"{self.symbols[k].name} = {dims[k]} ({where[k]})" for k in numbers)
                facts = {"message": constraint.message, "code": constraint.code, "sizes": sizes}
                raise failure(codes.SIZES_MISFIT, InputValueError, where=constraint.where, **facts)

    def _check_derived(self, derived: list[tuple[Port, int, int, CodeType]], dims: list[int | None]) -> None:
        space = {f"d{i}": d for i, d in enumerate(dims) if d is not None}
        for port, axis, given, code in derived:
            if any(n not in space and n not in _FUNCTIONS for n in code.co_names):
                continue
            wanted = eval(code, _FUNCTIONS, space)
            if wanted != given:
                shape = port.shape or ()
                raise failure(
                    codes.SYMBOL_CONFLICT,
                    InputValueError,
                    symbol=shape[axis],
                    first=wanted,
                    where_first="the other inputs",
                    second=given,
                    where_second=f"axis {axis} of {port.name!r}",
                )

    def _in_range(self, symbol: int, given: int, where: str) -> None:
        s = self.symbols[symbol]
        if given < s.lo or (s.hi is not None and given > s.hi):
            hi = "any" if s.hi is None else s.hi
            raise failure(codes.SYMBOL_RANGE, InputValueError, symbol=s.name, given=given, where=where, lo=s.lo, hi=hi)

    @staticmethod
    def _misfit(port: Port, array: Array) -> Exception:
        given = "[" + ",".join(map(str, array.shape)) + "]"
        return failure(
            codes.INPUT_SHAPE, InputValueError, role="input", name=port.name, wanted=port.describe(), given=given
        )
