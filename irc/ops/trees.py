"""Ensembles of decision trees: TreeEnsemble, TreeEnsembleClassifier, TreeEnsembleRegressor.

Source: ONNX ai.onnx.ml; ONNX Runtime for the scores of two classes that only one class votes for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation as codes
from irc.ir.graph import Value
from irc.ir.types import FLOATS, TensorType, f16, f32, f64, i32, i64, string, u8
from irc.opdef.base import Op, op, op_base
from irc.opdef.builder import Builder
from irc.opdef.codecs import Codec, Enum, Floats, Ignored, Int, Ints, Numbers, Strs
from irc.opdef.forms import Form
from irc.opdef.signature import Sig
from irc.ops.scores import POST_TRANSFORM, TRANSFORMS, chosen, columns, either, table, transformed
from irc.ops.tree_tables import LEAF, MODES, Nodes
from irc.ops.tree_walk import tree_scores

ML = "ai.onnx.ml"
FEATURES = frozenset({f32, f64, i64, i32})
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
NODES: dict[str, Codec] = {
    "nodes_treeids": Ints(()),
    "nodes_nodeids": Ints(()),
    "nodes_featureids": Ints(()),
    "nodes_modes": Strs(()),
    "nodes_values": Floats(()),
    "nodes_truenodeids": Ints(()),
    "nodes_falsenodeids": Ints(()),
    "nodes_missing_value_tracks_true": Ints(()),
    "nodes_hitrates": Ignored(),
}
AS_TENSORS: dict[str, Codec] = {
    "nodes_values_as_tensor": Numbers(()),
    "nodes_hitrates_as_tensor": Ignored(),
    "base_values_as_tensor": Numbers(()),
}

REGRESSOR: dict[str, Codec] = {
    **NODES,
    "base_values": Floats(()),
    "target_treeids": Ints(()),
    "target_nodeids": Ints(()),
    "target_ids": Ints(()),
    "target_weights": Floats(()),
    "n_targets": Int(1, lo=1),
    "aggregate_function": Enum(AGGREGATES, "SUM"),
    "post_transform": POST_TRANSFORM,
}
CLASSIFIER: dict[str, Codec] = {
    **NODES,
    "base_values": Floats(()),
    "class_treeids": Ints(()),
    "class_nodeids": Ints(()),
    "class_ids": Ints(()),
    "class_weights": Floats(()),
    "classlabels_int64s": Ints(()),
    "classlabels_strings": Strs(()),
    "post_transform": POST_TRANSFORM,
}


def same_length(op: str, lists: Mapping[str, Sequence[Any]], optional: Sequence[str] = ()) -> None:
    """Require lists of equal length; optional ones may be empty."""
    needed = len(next(iter(lists.values())))
    for name, values in lists.items():
        fits = len(values) == needed or (name in optional and not values)
        require(fits, codes.ATTRIBUTE_LENGTH, op=op, attribute=name, given=len(values), needed=needed)


def in_range(op: str, attribute: str, values: Sequence[int], most: int) -> None:
    """Require numbers from 0 to below `most`."""
    for value in values:
        expected = f"in 0..{most - 1}"
        require(0 <= value < most, codes.ATTRIBUTE_RANGE, op=op, attribute=attribute, value=value, expected=expected)


def rows_of(b: Builder, x: Value) -> Value:
    """Make features floats that hold all of them, and one row of a vector."""
    x = b.Unsqueeze(x, [0]) if len(x.shape) == 1 else x
    return x if x.dtype in (f32, f64) else b.Cast(x, to=f32 if x.dtype == f16 else f64)


@op
class TreeEnsemble(Op):
    """The votes of the leaves that a row comes to in each tree, aggregated and transformed.

    x: [n, features]; y: [n, n_targets]. Nodes are numbered from 0; nodes_trueleafs and nodes_falseleafs say which of
    nodes_truenodeids and nodes_falsenodeids number leaves.
    """

    nodes_featureids: tuple[int, ...]
    nodes_modes: tuple[int, ...]
    nodes_splits: tuple[float, ...]
    nodes_truenodeids: tuple[int, ...]
    nodes_falsenodeids: tuple[int, ...]
    nodes_trueleafs: tuple[int, ...]
    nodes_falseleafs: tuple[int, ...]
    tree_roots: tuple[int, ...]
    leaf_targetids: tuple[int, ...]
    leaf_weights: tuple[float, ...]
    membership_values: tuple[float, ...] = ()
    nodes_missing_value_tracks_true: tuple[int, ...] = ()
    n_targets: int = 1
    aggregate_function: str = "SUM"
    post_transform: str = "NONE"
    sig = Sig("x: T[2] -> y: T", T=FLOATS)

    def infer(self, x: Value) -> TensorType:
        return TensorType.of(x.dtype, [x.shape[0], self.n_targets])

    def nodes(self) -> Nodes:
        """The nodes, and behind them the leaves."""
        lists = {name: getattr(self, name) for name in self.attributes() if name.startswith("nodes_")}
        same_length(self.name, lists, ("nodes_missing_value_tracks_true",))
        same_length(self.name, {"leaf_targetids": self.leaf_targetids, "leaf_weights": self.leaf_weights})
        in_range(self.name, "nodes_modes", self.nodes_modes, len(MODES))
        in_range(self.name, "leaf_targetids", self.leaf_targetids, self.n_targets)
        count, leaves = len(self.nodes_modes), len(self.leaf_weights)
        for name, ids, leaf in (
            ("nodes_truenodeids", self.nodes_truenodeids, self.nodes_trueleafs),
            ("nodes_falsenodeids", self.nodes_falsenodeids, self.nodes_falseleafs),
        ):
            in_range(self.name, name, [i for i, is_leaf in zip(ids, leaf, strict=True) if is_leaf], leaves)
            in_range(self.name, name, [i for i, is_leaf in zip(ids, leaf, strict=True) if not is_leaf], count)
        yes = [i + count * bool(k) for i, k in zip(self.nodes_truenodeids, self.nodes_trueleafs, strict=True)]
        no = [i + count * bool(k) for i, k in zip(self.nodes_falsenodeids, self.nodes_falseleafs, strict=True)]
        modes = [MODES[m] for m in self.nodes_modes] + [LEAF] * leaves
        missing = self.nodes_missing_value_tracks_true
        return Nodes(self.name, modes, self.nodes_featureids, self.nodes_splits, yes, no, missing, self._members())

    def _members(self) -> dict[int, list[float]]:
        """The set of each node of mode BRANCH_MEMBER: NaNs end them, in the order of the nodes."""
        sets, current = list[list[float]](), list[float]()
        for value in self.membership_values:
            if value != value:
                sets.append(current)
                current = []
            else:
                current.append(value)
        sets += [current] if current else []
        wanted = [k for k, mode in enumerate(self.nodes_modes) if mode == len(MODES) - 1]
        facts = {"op": self.name, "attribute": "membership_values", "given": len(sets), "needed": len(wanted)}
        require(len(sets) == len(wanted), codes.ATTRIBUTE_LENGTH, **facts)
        return dict(zip(wanted, sets, strict=True))

    def decompose(self, b: Builder, x: Value) -> Value:
        nodes = self.nodes()
        count = len(self.nodes_modes)
        leaves = zip(self.leaf_targetids, self.leaf_weights, strict=True)
        entries = {count + k: [vote] for k, vote in enumerate(leaves)}
        roots = list(self.tree_roots)
        in_range(self.name, "tree_roots", roots, count)
        roots = [nodes.yes[r] if nodes.yes[r] == nodes.no[r] and nodes.yes[r] >= count else r for r in roots]
        found = tree_scores(b, rows_of(b, x), nodes, roots, entries, self.n_targets, self.aggregate_function)
        return b.Cast(transformed(b, self.post_transform, found), to=x.dtype)

    onnx = (
        Form(
            "TreeEnsemble",
            5,
            attrs={
                "nodes_featureids": Ints(),
                "nodes_modes": Numbers(dtype=u8),
                "nodes_splits": Numbers(),
                "nodes_truenodeids": Ints(),
                "nodes_falsenodeids": Ints(),
                "nodes_trueleafs": Ints(),
                "nodes_falseleafs": Ints(),
                "tree_roots": Ints(),
                "leaf_targetids": Ints(),
                "leaf_weights": Numbers(),
                "membership_values": Numbers(()),
                "nodes_missing_value_tracks_true": Ints(()),
                "nodes_hitrates": Ignored(),
                "n_targets": Int(1, lo=1),
                "aggregate_function": Enum(dict(enumerate(AGGREGATES)), "SUM"),
                "post_transform": Enum(dict(enumerate(TRANSFORMS)), "NONE"),
            },
            T=FLOATS,
            domain=ML,
        ),
    )


@op_base
class FiledTrees(Op):
    """What TreeEnsembleClassifier and TreeEnsembleRegressor share: nodes with numbers of their own in each tree."""

    nodes_treeids: tuple[int, ...] = ()
    nodes_nodeids: tuple[int, ...] = ()
    nodes_featureids: tuple[int, ...] = ()
    nodes_modes: tuple[str, ...] = ()
    nodes_values: tuple[float, ...] = ()
    nodes_truenodeids: tuple[int, ...] = ()
    nodes_falsenodeids: tuple[int, ...] = ()
    nodes_missing_value_tracks_true: tuple[int, ...] = ()
    nodes_values_as_tensor: tuple[float, ...] = ()
    base_values: tuple[float, ...] = ()
    base_values_as_tensor: tuple[float, ...] = ()

    @property
    def base(self) -> tuple[float, ...]:
        return self.base_values_as_tensor or self.base_values

    def nodes(self) -> tuple[Nodes, list[int], dict[tuple[int, int], int]]:
        """The nodes, the first of each tree, and the position of each (tree, number)."""
        values = self.nodes_values_as_tensor or self.nodes_values
        lists: dict[str, Sequence[Any]] = {
            "nodes_treeids": self.nodes_treeids,
            "nodes_nodeids": self.nodes_nodeids,
            "nodes_featureids": self.nodes_featureids,
            "nodes_modes": self.nodes_modes,
            "nodes_values": values,
            "nodes_truenodeids": self.nodes_truenodeids,
            "nodes_falsenodeids": self.nodes_falsenodeids,
            "nodes_missing_value_tracks_true": self.nodes_missing_value_tracks_true,
        }
        same_length(self.name, lists, ("nodes_missing_value_tracks_true",))
        known = (*MODES[:-1], LEAF)
        for mode in self.nodes_modes:
            facts = {"attribute": "nodes_modes", "value": mode, "expected": f"one of {', '.join(known)}"}
            require(mode in known, codes.ATTRIBUTE_RANGE, op=self.name, **facts)
        places = {key: k for k, key in enumerate(zip(self.nodes_treeids, self.nodes_nodeids, strict=True))}
        roots: dict[int, int] = {}
        for k, tree in enumerate(self.nodes_treeids):
            roots.setdefault(tree, k)
        yes, no = (
            [places.get((tree, node), -1) for tree, node in zip(self.nodes_treeids, ids, strict=True)]
            for ids in (self.nodes_truenodeids, self.nodes_falsenodeids)
        )
        missing = self.nodes_missing_value_tracks_true
        nodes = Nodes(self.name, self.nodes_modes, self.nodes_featureids, values, yes, no, missing)
        return nodes, list(roots.values()), places

    def scores(
        self,
        b: Builder,
        x: Value,
        votes: tuple[str, Sequence[int], Sequence[int], Sequence[int], Sequence[float]],
        targets: int,
        aggregate: str = "SUM",
    ) -> Value:
        """The aggregated votes, as f32 without base values; votes: whose, trees, nodes, targets, weights."""
        whose, trees, numbers, ids, weights = votes
        filed = {f"{whose}_treeids": trees, f"{whose}_nodeids": numbers, f"{whose}_ids": ids}
        same_length(self.name, {**filed, f"{whose}_weights": weights})
        in_range(self.name, f"{whose}_ids", ids, targets)
        nodes, roots, places = self.nodes()
        entries: dict[int, list[tuple[int, float]]] = {}
        for tree, number, target, weight in zip(trees, numbers, ids, weights, strict=True):
            entries.setdefault(places.get((tree, number), -2), []).append((target, weight))
        if whose == "target" and targets == 1:
            entries = {leaf: given[:1] for leaf, given in entries.items()}
        return tree_scores(b, rows_of(b, x), nodes, roots, entries, targets, aggregate)


@op
class TreeEnsembleRegressor(FiledTrees):
    """The votes of the leaves that a row comes to in each tree, aggregated, plus base values, transformed.

    x: [n, features]; y: [n, n_targets].  Of several votes of a leaf for the only target, the first counts.
    """

    target_treeids: tuple[int, ...] = ()
    target_nodeids: tuple[int, ...] = ()
    target_ids: tuple[int, ...] = ()
    target_weights: tuple[float, ...] = ()
    target_weights_as_tensor: tuple[float, ...] = ()
    n_targets: int = 1
    aggregate_function: str = "SUM"
    post_transform: str = "NONE"
    sig = Sig("x: T[1..2] -> y: f32", T=FEATURES)

    def decompose(self, b: Builder, x: Value) -> Value:
        weights = self.target_weights_as_tensor or self.target_weights
        votes = ("target", self.target_treeids, self.target_nodeids, self.target_ids, weights)
        found = self.scores(b, x, votes, self.n_targets, self.aggregate_function)
        if self.base:
            facts = {"op": self.name, "attribute": "base_values", "given": len(self.base), "needed": self.n_targets}
            require(len(self.base) == self.n_targets, codes.ATTRIBUTE_LENGTH, **facts)
            found = b.Add(found, b.const([self.base], found.dtype))
        return b.Cast(transformed(b, self.post_transform, found), to=f32)

    onnx = (
        Form("TreeEnsembleRegressor", 1, attrs=REGRESSOR, T=FEATURES, domain=ML),
        Form(
            "TreeEnsembleRegressor",
            3,
            attrs={**REGRESSOR, **AS_TENSORS, "target_weights_as_tensor": Numbers(())},
            domain=ML,
        ),
    )


@op
class TreeEnsembleClassifier(FiledTrees):
    """The scores of classes by the votes of the leaves that a row comes to, and the label of the best.

    x: [n, features]; label: [n]; scores: [n, classes].  Where there are two classes and all votes are for one of
    them, the other's score follows from it.
    """

    class_treeids: tuple[int, ...] = ()
    class_nodeids: tuple[int, ...] = ()
    class_ids: tuple[int, ...] = ()
    class_weights: tuple[float, ...] = ()
    class_weights_as_tensor: tuple[float, ...] = ()
    classlabels_int64s: tuple[int, ...] = ()
    classlabels_strings: tuple[str, ...] = ()
    post_transform: str = "NONE"
    sig = Sig("x: T[1..2] -> label: L, scores: f32", T=FEATURES, L={string, i64})

    def decompose(self, b: Builder, x: Value) -> tuple[Value, Value]:
        labels = table(b, self.classlabels_int64s, self.classlabels_strings)
        classes = max(len(self.classlabels_int64s), len(self.classlabels_strings))
        facts = {"op": self.name, "attribute": "classlabels_int64s", "given": classes, "needed": "at least 1"}
        require(classes > 0, codes.ATTRIBUTE_LENGTH, **facts)
        weights = self.class_weights_as_tensor or self.class_weights
        votes = ("class", self.class_treeids, self.class_nodeids, self.class_ids, weights)
        found = self.scores(b, x, votes, classes)
        if classes == 2 and len(set(self.class_ids)) == 1:
            label, scores = self._binary(b, found, labels, min(weights, default=0) >= 0)
        else:
            if self.base:
                facts = {"op": self.name, "attribute": "base_values", "given": len(self.base), "needed": classes}
                require(len(self.base) == classes, codes.ATTRIBUTE_LENGTH, **facts)
                found = b.Add(found, b.const([self.base], found.dtype))
            label, scores = chosen(b, labels, found), transformed(b, self.post_transform, found)
        return label, b.Cast(scores, to=f32)

    def _binary(self, b: Builder, found: Value, labels: Value, positive: bool) -> tuple[Value, Value]:
        """The label by the one class that is voted for, and both scores.

        Of votes for class 0, whose score is s, they are -s and s, or 1 - s and s where no weight is negative; a
        softmax of them is not taken.
        """
        which = self.class_ids[0]
        score = b.Gather(found, b.const(which), b.const(1))
        if self.base:
            score = b.Add(score, float(np.float32(self.base[min(which, len(self.base) - 1)])))
        label = either(b, b.Less(b.like(0.5 if positive else 0, score), score), labels)
        if which == 1:
            other = self.base[0] if len(self.base) == 2 else 0
            both = columns(b, b.Expand(b.like(float(np.float32(other)), score), b.Shape(score)), score)
            return label, transformed(b, self.post_transform, both)
        opposite = b.Sub(b.like(1, score), score) if positive else b.Neg(score)
        if self.post_transform == "LOGISTIC":
            opposite = b.Neg(score)
        both = columns(b, opposite, score)
        alone = self.post_transform in ("LOGISTIC", "PROBIT")
        return label, transformed(b, self.post_transform, both) if alone else both

    onnx = (
        Form("TreeEnsembleClassifier", 1, attrs=CLASSIFIER, T={"T": FEATURES, "L": {string, i64}}, domain=ML),
        Form(
            "TreeEnsembleClassifier",
            3,
            attrs={**CLASSIFIER, **AS_TENSORS, "class_weights_as_tensor": Numbers(())},
            domain=ML,
        ),
    )
