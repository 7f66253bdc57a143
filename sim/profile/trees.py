"""Boosted trees as plain arrays: fitted by LightGBM, evaluated here without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ..compiled import compiled

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Trees:
    """Nodes of all trees, one after another; `roots` [T] are the first nodes. A leaf has feature −1 and a value."""

    roots: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: Floats
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: Floats

    def predict(self, features: Floats) -> Floats:
        """[R, F] → [R]: the sum over trees."""
        rows = np.ascontiguousarray(features, np.float64)
        out = np.zeros(len(rows))
        _sum_of_leaves(rows, self.roots, self.feature, self.threshold, self.left, self.right, self.value, out)
        return out


@compiled
def _sum_of_leaves(
    rows: Any, roots: Any, feature: Any, threshold: Any, left: Any, right: Any, value: Any, out: Any
) -> None:
    for row in range(rows.shape[0]):
        total = 0.0
        for tree in range(roots.shape[0]):
            node = roots[tree]
            while feature[node] >= 0:
                node = left[node] if rows[row, feature[node]] <= threshold[node] else right[node]
            total += value[node]
        out[row] = total


def fit_trees(
    features: Floats,
    target: Floats,
    *,
    rounds: int,
    leaves: int,
    seed: int,
    threads: int = 2,
    rate: float = 0.1,
) -> Trees:
    """Least absolute error on the target. Raises `UsageError` where LightGBM is not installed (extra `silicon`)."""
    try:
        import lightgbm
    except ImportError as error:
        raise UsageError(
            f"fitting trees needs LightGBM: pip install 'codesign-workbench[silicon]' ({error})"
        ) from error
    data = lightgbm.Dataset(features, target, params={"max_bin": 127, "verbose": -1})
    settings = {
        "objective": "mae", "learning_rate": rate, "num_leaves": leaves, "min_data_in_leaf": 60, "num_threads": threads,
        "feature_fraction": 0.8, "bagging_fraction": 0.6, "bagging_freq": 1, "max_bin": 127, "verbose": -1, "seed": seed,
        "deterministic": True, "force_row_wise": True,
    }  # fmt: skip
    return flattened(lightgbm.train(settings, data, rounds).dump_model())


def flattened(model: Mapping[str, Any]) -> Trees:
    """LightGBM's dumped model as arrays."""
    roots: list[int] = []
    feature: list[int] = []
    threshold: list[float] = []
    left: list[int] = []
    right: list[int] = []
    value: list[float] = []

    def add(node: Mapping[str, Any]) -> int:
        here = len(feature)
        inner = "split_feature" in node
        feature.append(int(node["split_feature"]) if inner else -1)
        threshold.append(float(node["threshold"]) if inner else 0.0)
        value.append(0.0 if inner else float(node["leaf_value"]))
        left.append(-1)
        right.append(-1)
        if inner:
            left[here] = add(node["left_child"])
            right[here] = add(node["right_child"])
        return here

    for tree in model["tree_info"]:
        roots.append(add(tree["tree_structure"]))
    ints = (
        np.array(roots, np.int32),
        np.array(feature, np.int32),
        np.array(left, np.int32),
        np.array(right, np.int32),
    )
    return Trees(ints[0], ints[1], np.array(threshold), ints[2], ints[3], np.array(value))
