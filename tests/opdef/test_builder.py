"""What types cannot say of `b.Name(operands, attribute=…)`: that operation exists, with such attributes, one result."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path

import pytest

from irc.opdef.registry import OPS, load_all

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(p for folder in ("irc", "tests") for p in (ROOT / folder).rglob("*.py"))
PATHS = [p for p in SOURCES if re.search(r"\bb\.[A-Z]|Builder", p.read_text("utf-8"))]


def calls_by_name(path: Path) -> list[ast.Call]:
    """The calls of `b.Name` (or `self.Name`, in a Builder; or `Builder(…).Name`) whose name starts with a capital."""
    return [
        node
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr[0].isupper()
        and ast.unparse(node.func.value).startswith(("b", "self", "Builder("))
    ]


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_operations_that_are_built_by_name_exist(path: Path) -> None:
    load_all()
    for call in calls_by_name(path):
        assert isinstance(call.func, ast.Attribute)
        where, name = f"{path.name}:{call.lineno}", call.func.attr
        assert name in OPS, f"{where}: there is no operation {name}"
        known = {f.name for f in dataclasses.fields(OPS[name])}
        unknown = {k.arg for k in call.keywords if k.arg} - known
        assert not unknown, f"{where}: {name} has no attribute {unknown}"
        results = OPS[name].sig.outputs
        one = len(results) == 1 and not results[0].variadic
        assert one, f"{where}: {name} has several results: b.add_all({name}(…), …)"


def test_calls_by_name_are_seen() -> None:
    assert sum(len(calls_by_name(path)) for path in PATHS) > 500
