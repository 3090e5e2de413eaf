"""Operations are equal if their kind and every attribute is."""

import dataclasses
from copy import copy

import pytest

from irc.opdef.base import Op, load_all
from irc.opdef.registry import OPS

load_all()


@pytest.mark.parametrize("name", sorted(OPS))
def test_operations_that_differ_in_an_attribute_are_not_equal(name: str) -> None:
    made: Op = object.__new__(OPS[name])
    names = [f.name for f in dataclasses.fields(OPS[name])]
    for field in names:
        object.__setattr__(made, field, 1)
    assert copy(made) == made
    assert hash(copy(made)) == hash(made)
    for field in names:
        other = copy(made)
        object.__setattr__(other, field, 2)
        assert other != made, field
