"""`--max-ram`: speed is given up for memory, and what is missing is said."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import irc
from irc.driver import CompileOptions, sources
from tests.shipping.test_targets import DIGITS, digits
from tests.support import shipped

SIZES = {"image": (64, 1, 8, 8)}
OPTIONS = CompileOptions(backend="c", target="x86-64-v3", shapes=SIZES, cache=False)


def context_of(model: object, options: CompileOptions) -> int:
    """The bytes of the context, as the manifest and the header say."""
    draft = sources(irc.load(model), options)
    found = draft.manifest["memory"]["context_bytes"]
    assert f"_CONTEXT_BYTES {found}\n" in str(draft.files["model.h"])
    return found


def least(model: object, options: CompileOptions) -> int:
    with pytest.raises(irc.CompileError, match="IRC5012") as e:
        sources(irc.load(model), replace(options, max_ram=1))
    need, excess, limit = map(int, re.findall(r"\d+", str(e.value).partition("context of")[2])[:3])
    assert excess == need - 1 and limit == 1
    return need


@pytest.mark.parametrize("model", ["digits", "dscnn"])
def test_speed_is_given_up_step_by_step(model: str) -> None:
    given = shipped.keyword_spotter() if model == "dscnn" else DIGITS
    options = OPTIONS if model == "digits" else replace(OPTIONS, shapes={})
    before, need = context_of(given, options), least(given, options)
    assert need < before
    assert context_of(given, replace(options, max_ram=before)) == before
    assert need <= context_of(given, replace(options, max_ram=before - 1)) < before
    assert context_of(given, replace(options, max_ram=need)) == need


def test_too_little_memory_says_by_how_much() -> None:
    need = least(DIGITS, OPTIONS)
    with pytest.raises(irc.CompileError, match=f"IRC5012.*context of {need} bytes, 10 more than the {need - 10} given"):
        sources(irc.load(DIGITS), replace(OPTIONS, max_ram=need - 10))


def test_sizes_must_be_known() -> None:
    with pytest.raises(irc.CompileError, match="IRC5013"):
        sources(irc.load(DIGITS), replace(OPTIONS, shapes={}, max_ram=1 << 20))


def test_there_is_no_context_in_numpy() -> None:
    with pytest.raises(irc.CompileError, match=r"IRC6350.*max_ram"):
        irc.compile(DIGITS, backend="numpy", max_ram=1000)


@pytest.mark.compiler
def test_the_same_is_computed_in_the_least_memory() -> None:
    shapes, native = {"image": (64, 1, 8, 8)}, replace(OPTIONS, target="native")
    small = irc.compile(DIGITS, backend="c", shapes=shapes, max_ram=least(DIGITS, native), cache=False)
    large = irc.compile(DIGITS, backend="c", shapes=shapes, cache=False)
    np.testing.assert_allclose(small(digits(64))[0], large(digits(64))[0], rtol=1e-4, atol=1e-5)
