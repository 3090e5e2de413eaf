"""Standalone source of operations' references, specialised to the operation's attributes.

`Library.operation(op)` gives the name of a function over arrays.  Its body is the `reference` method's,
with everything known when compiling (attributes, element types, tables) written as literals, branches
on them decided, and the functions it calls pulled in the same way.  Checks of the operands stay, as
ValueErrors with irc's codes.
"""

from __future__ import annotations

import ast
import builtins
import copy
import dataclasses
import inspect
import re
import types
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from irc.backends.numpy.literals import literal
from irc.backends.numpy.partial import Static
from irc.backends.numpy.rewrite import Rewriter
from irc.backends.numpy.source import (
    NeedsStatement,
    NoSource,
    assigned_once,
    bound_names,
    function_node,
    import_values,
    module_value,
    scope,
)
from irc.backends.numpy.text import PyName, snake
from irc.diagnostics import Problem
from irc.diagnostics.codes import runtime_io as codes
from irc.opdef.base import Op
from irc.opdef.elementwise import Elementwise

_ENTRY = "\n\n\n"


def operation_hint(op: Op) -> str:
    """A readable function name: the operation and the attributes that differ from their defaults."""
    parts = [snake(op.name)]
    for f in dataclasses.fields(op):
        value = getattr(op, f.name)
        if value == f.default or isinstance(value, np.ndarray):
            continue
        text = f"{f.name}" if value is True else f"{f.name}_{value}"
        if len(text) <= 24:
            parts.append(re.sub(r"[^A-Za-z0-9_]+", "_", text.replace("-", "minus_")).strip("_"))
    name = "_".join(parts)
    return name if len(name) <= 60 else parts[0]


@dataclass
class Library:
    """The functions, constants and imports of one emitted module, each once, in order of need."""

    functions: dict[str, str] = field(default_factory=dict[str, str])  # name → source
    constants: dict[str, str] = field(default_factory=dict[str, str])  # name → assignment
    imports: dict[str, str] = field(default_factory=lambda: {"np": "import numpy as np"})
    taken: set[str] = field(default_factory=lambda: {"np", "ml_dtypes", "run", "main", "WEIGHTS", "weight"})
    inner: set[str] = field(default_factory=set[str])  # names that functions use for their own variables
    _known: dict[Any, PyName] = field(default_factory=dict[Any, PyName])

    # ------------------------------------------------------------------ entrances
    def operation(self, op: Op) -> PyName:
        """The function of an operation's reference.  Problem IRC6360 where it cannot be written."""
        method: Any = type(op).reference
        known: dict[str, Any] = {"self": op}
        if isinstance(op, Elementwise) and method is Elementwise.reference and isinstance(op.ufunc, types.FunctionType):
            method, known = op.ufunc, {}  # of which `reference` is only a call
        try:
            return self.function(method, known, operation_hint(op), op.__doc__ or "")
        except NoSource as e:
            raise Problem(codes.NO_NUMPY_SOURCE, op=op.name, reason=e) from e

    def function(
        self, function: Any, known: dict[str, Any], hint: str, doc: str = "", avoid: set[str] | None = None
    ) -> PyName:
        """The name of that function with the parameters in `known` fixed; `avoid` are the caller's variables."""
        key = (function, tuple(sorted(((k, _identity(v)) for k, v in known.items()), key=str)))
        if key not in self._known or self._known[key] in (avoid or ()):
            name = self._known[key] = self.fresh(hint, self.inner | (avoid or set()))
            self.functions[name] = ""  # holds the place: callees come after, recursion finds the name
            self.functions[name] = self._source(function, known, name, doc)
        return self._known[key]

    def fresh(self, hint: str, avoid: set[str] | None = None) -> PyName:
        """An unused name of the module."""
        return PyName.of_model(hint, self.taken, avoid or ())

    def text(self) -> str:
        """All functions, callees after their callers."""
        return _ENTRY.join(self.functions.values())

    # ------------------------------------------------------------------- one function
    def _source(self, function: types.FunctionType, known: dict[str, Any], name: PyName, doc: str) -> str:
        kept: set[str] = set()  # variables whose assignments stay, although their values are known
        while True:
            try:
                node = self._specialised(function, known, name, kept)
                break
            except NeedsStatement as e:
                if e.name in kept:
                    raise
                kept.add(e.name)
        if doc:
            node.body = [ast.Expr(ast.Constant(inspect.cleandoc(doc).split("\n\n")[0])), *node.body]
        ast.fix_missing_locations(node)
        return ast.unparse(node)

    def _specialised(
        self, function: types.FunctionType, known: dict[str, Any], name: PyName, kept: set[str]
    ) -> ast.FunctionDef:
        node = copy.deepcopy(function_node(function))
        if isinstance(node, ast.Lambda):
            body: list[ast.stmt] = [ast.Return(node.body)]
            node = ast.FunctionDef(name, node.args, body, [])
        node.name, node.decorator_list, node.returns = name, [], None
        _fix_parameters(node, function, known)
        imported = import_values(node)
        local = bound_names(node)
        static = Static({**scope(function), **imported}, dict(known), local - set(imported))
        self.inner |= local
        return Rewriter(self, static, function, assigned_once(node) - kept).run(node)

    # ------------------------------------------------------------- names in expressions
    def use(self, name: str, value: Any, owner: str, avoid: set[str] | None = None) -> str:
        """Source for a name of module `owner` that holds `value`."""
        if isinstance(value, types.ModuleType):
            return self.module(value)
        if isinstance(value, types.BuiltinFunctionType) and value.__module__ == "math":
            self.imports.setdefault("math", "import math")
            return f"math.{value.__name__}"
        known = self.known_object(value)
        if known is not None:
            return known
        if isinstance(value, types.FunctionType):
            return self.function(value, {}, snake(name), avoid=avoid)
        text = literal(value)
        if text is not None and (isinstance(value, int | float | str | bytes | None | np.dtype | type)):
            self.note(text)
            return text
        return self.constant(name, value, owner)

    def known_object(self, value: Any) -> str | None:
        """A function or class of NumPy, ml_dtypes, built in or of the standard library."""
        name, module = getattr(value, "__name__", None), getattr(value, "__module__", None)
        if name and vars(np).get(name) is value:
            return f"np.{name}"
        if isinstance(value, type | types.BuiltinFunctionType):
            text = literal(value) if isinstance(value, type) else None
            if text is not None:
                self.note(text)
                return text
            if name and getattr(builtins, name, None) is value:
                return str(name)
        top = str(module or "").split(".")[0]
        if top == "math":  # its names are common ones: never bare
            self.imports.setdefault("math", "import math")
            return f"math.{name}"
        if name and top and top not in ("irc", "builtins", "numpy", "__main__") and callable(value):
            self.imports.setdefault(f"{module}.{name}", f"from {module} import {name}")
            return str(name)
        return None

    def constant(self, name: str, value: Any, owner: str) -> PyName:
        """A module-level constant of the emitted module."""
        key = ("constant", owner, name)
        if key in self._known:
            return self._known[key]
        text = literal(value)
        if text is None:
            expression = module_value(owner, name)
            if expression is None:
                raise NoSource(f"{name} of {owner} is {type(value).__name__}, which has no source")
            import importlib

            static = Static({**vars(builtins), **vars(importlib.import_module(owner))}, {}, bound_names(expression))
            made = Rewriter(self, static, None, set(), owner).visit(copy.deepcopy(expression))
            text = ast.unparse(ast.fix_missing_locations(made))
        self.note(text)
        self._known[key] = self.fresh(name)
        self.constants[self._known[key]] = f"{self._known[key]} = {text}"
        return self._known[key]

    def module(self, module: types.ModuleType) -> str:
        """An import; the name the module is known by."""
        full = module.__name__
        if full == "numpy":
            return "np"
        if full.split(".")[0] == "irc":
            raise NoSource(f"the module {full} is used as a value")
        self.imports.setdefault(full, f"import {full}")
        return full

    def note(self, text: str) -> None:
        """Import what the text of a literal mentions."""
        if "ml_dtypes." in text:
            self.imports.setdefault("ml_dtypes", "import ml_dtypes")


def _identity(value: Any) -> Any:
    """Equal operations share a function; other values by identity unless hashable."""
    try:
        hash(value)
    except TypeError:
        return id(value)
    return type(value).__name__, value


def _fix_parameters(node: ast.FunctionDef, function: types.FunctionType, known: dict[str, Any]) -> None:
    """Drop the parameters that are fixed, and the annotations."""
    args = node.args
    defaults = inspect.signature(function).parameters
    kept = [a for a in (*args.posonlyargs, *args.args) if a.arg not in known]
    values: list[ast.expr] = []
    for a in kept:
        given = defaults[a.arg].default
        if given is inspect.Parameter.empty:
            continue
        text = literal(given)
        if text is None:
            raise NoSource(f"the default of {a.arg} in {function.__qualname__} has no source")
        values.append(ast.parse(text, mode="eval").body)
    only = [(a, d) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if a.arg not in known]
    node.args = ast.arguments([], kept, args.vararg, [a for a, _ in only], [d for _, d in only], args.kwarg, values)
    for a in [*node.args.args, *node.args.kwonlyargs, *filter(None, (args.vararg, args.kwarg))]:
        a.annotation = None
