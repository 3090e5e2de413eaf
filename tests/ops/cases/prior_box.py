"""Boxes around the cells of a grid: sizes, ratios, densities, steps, orders."""

from irc.ops.prior_box import PriorBox, PriorBoxClustered
from tests.ops.cases import Case, Spec

GRID = (Spec("i64", (2,), values=[2, 3], const=True), Spec("i64", (2,), values=[32, 48], const=True))
SIZES = {"min_size": (16.0, 20.0), "max_size": (30.0, 40.0), "aspect_ratio": (2.0, 3.0, 2.0)}

CASES = [
    Case(PriorBox(0.5, **SIZES, flip=True, clip=True, variance=(0.1, 0.1, 0.2, 0.2)), GRID, 1e-5),
    Case(PriorBox(0.25, **SIZES, step=8.0, min_max_aspect_ratios_order=False, variance=(0.3,)), GRID, 1e-5),
    Case(PriorBox(0.5, min_size=(0.2, 0.3), aspect_ratio=(2.0,), scale_all_sizes=False, step=-1.0), GRID, 1e-5),
    Case(PriorBox(0.5, min_size=(0.2,), max_size=(0.4,), scale_all_sizes=False, step=0.25), GRID, 1e-5),
    Case(PriorBox(0.0, density=(2.0, 1.0), fixed_ratio=(1.0, 2.0), fixed_size=(8.0, 9.0)), GRID, 1e-5),
    Case(
        PriorBox(0.0, density=(2.0,), fixed_size=(8.0,), aspect_ratio=(2.0,), min_size=(0.5,), scale_all_sizes=False),
        GRID,
        1e-5,
    ),
    Case(PriorBoxClustered(0.5, width=(8.0, 16.0), height=(10.0, 12.0)), GRID, 1e-5),
    Case(PriorBoxClustered(0.0, step=16.0, width=(8.0,), height=(10.0,), clip=False, variance=(0.2,)), GRID, 1e-5),
    Case(PriorBoxClustered(0.5, step_w=4.0, step_h=8.0, width=(8.0,), height=(9.0,), clip=False), GRID, 1e-5),
]
