"""The search for the first tensor out of tolerance: what it finds, and how few tensors it looks at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from irc.comparison.bisection import OUTPUTS_A_RUN, Search


class Model:
    """Tensors of which some are out of tolerance; counts how many were looked at in each run."""

    def __init__(self, wrong: set[int]) -> None:
        self.wrong = wrong
        self.asked: list[int] = []

    def differ(self, tensors: Sequence[int]) -> list[bool]:
        self.asked.append(len(tensors))
        return [i in self.wrong for i in tensors]


def reached(operands: Sequence[Sequence[int]], origins: set[int]) -> set[int]:
    """The tensors that an error in these reaches."""
    found: set[int] = set()
    for i, near in enumerate(operands):
        if i in origins or found & set(near):
            found.add(i)
    return found


def chain(count: int) -> list[list[int]]:
    return [[i - 1] if i else [] for i in range(count)]


@pytest.mark.parametrize("origin", [0, 1, 7, 8, 500, 998, 999])
def test_a_thousand_tensors_in_a_row(origin: int) -> None:
    model = Model(set(range(origin, 1000)))
    search = Search(chain(1000), model.differ)
    assert search.first_of([999]) == origin
    assert max(model.asked) <= OUTPUTS_A_RUN and search.runs == len(model.asked) <= 6


def test_nothing_differs() -> None:
    model = Model(set())
    assert Search(chain(50), model.differ).first_of([49]) is None
    assert sum(model.asked) == 33 and max(model.asked) <= OUTPUTS_A_RUN


def test_an_error_that_fades_out_before_the_outputs() -> None:
    model = Model(set(range(400, 450)))
    assert Search(chain(1000), model.differ).first_of([999]) == 400


def test_no_more_outputs_at_once_than_asked_for() -> None:
    model = Model(set(range(70, 101)))
    operands = [*chain(100), list(range(100))]
    assert Search(operands, model.differ, at_once=3).first_of([100, 99, 98, 97]) == 70
    assert max(model.asked) == 3


def test_an_error_that_is_hidden_on_its_way() -> None:
    """20 differs; 30 to 39 do not, as behind a Relu, and a second way leads round them."""
    operands = chain(60)
    operands[40] = [39, 25]
    wrong = (reached(operands, {20}) - set(range(30, 40))) | set(range(40, 60))
    model = Model(wrong)
    assert Search(operands, model.differ).first_of([59]) == 20


@pytest.mark.parametrize("seed", range(40))
def test_an_origin_is_found_in_any_graph(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 120))
    operands = [sorted({int(k) for k in rng.integers(0, i, rng.integers(0, 4))}) if i else [] for i in range(count)]
    origins = {int(i) for i in rng.integers(0, count, rng.integers(1, 3))}
    wrong = reached(operands, origins)
    if seed % 2:  # errors that vanish in places
        wrong -= {int(i) for i in rng.integers(0, count, count // 8)}
    model = Model(wrong)
    outputs = [count - 1, count // 2]
    found = Search(operands, model.differ).first_of(outputs)
    if not wrong & set(outputs):
        assert found is None or found in wrong
    else:
        assert found in wrong and not wrong & set(operands[found])
    assert max(model.asked) <= OUTPUTS_A_RUN
