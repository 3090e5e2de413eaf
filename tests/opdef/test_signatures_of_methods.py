"""Operations' methods take what their signatures allow: an operand that may be left out has a default."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

import irc.ops
from irc.opdef.base import Op

for _module in pkgutil.iter_modules(irc.ops.__path__):
    importlib.import_module(f"irc.ops.{_module.name}")


def operations(above: type[Op] = Op) -> Iterator[type[Op]]:
    """Walk the operations that declare a signature."""
    for cls in above.__subclasses__():
        if "sig" in vars(cls):
            yield cls
        yield from operations(cls)


@pytest.mark.parametrize("method", ["infer", "reference"])
def test_operands_that_may_be_left_out_have_defaults(method: str) -> None:
    found = list(operations())
    assert len(found) > 200
    for cls in found:
        parameters = list(inspect.signature(getattr(cls, method)).parameters.values())[1:]
        needed = [p for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
        given = [i for i, p in enumerate(cls.sig.inputs, 1) if not p.optional and not p.variadic]
        assert len(needed) <= max(given, default=0), cls.__name__
