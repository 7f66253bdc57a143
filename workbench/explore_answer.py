"""What an exploration answers on one machine: the front, its knee, the best by each measure, and each against the base."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..sim.catalog import model_document, model_names
from ..sim.designs.columns import SHAPE, with_mixture
from ..sim.designs.front import front, knee
from ..sim.model_facts import SPELLINGS, language_part
from .explore_study import DesignStudy

if TYPE_CHECKING:
    import pandas as pd

    from ..sim.model import ModelSpec

COLUMNS = {"total_params": "total_params", "active_params": "active_params", "flops": "active_flops_per_token"}
"""Measure → column of the table of designs; every other measure is a column by its own name."""


_USUAL = {"experts": "num_experts", "top-k": "num_experts_per_tok", "expert width": "moe_intermediate_size"}


@dataclass(frozen=True)
class Front:
    """Rows of the table of designs. `best` holds the row with the best value of each measure."""

    measures: tuple[str, ...]
    rows: tuple[int, ...]
    """Not beaten by any other, by the first measure."""
    knee: int
    """On the front, nearest to the best of every measure together, each scaled to the front's span."""
    best: dict[str, int]
    unknown: int
    """Designs without a value of some measure: they do not fit the memory, or a law refuses them."""

    @property
    def chosen(self) -> tuple[int, ...]:
        """The rows to look at first: knee, then the best of each measure, each once."""
        return tuple(dict.fromkeys((self.knee, *self.best.values())))

    def to_dict(self) -> dict[str, Any]:
        return {
            "measures": list(self.measures), "rows": list(self.rows), "knee": self.knee, "best": self.best,
            "unknown": self.unknown,
        }  # fmt: skip


def values_of(study: DesignStudy, designs: pd.DataFrame, costs: pd.DataFrame) -> NDArray[np.float64]:
    """[R, M] of the study's measures, signed so that small is good."""
    found = []
    for measure, small in study.measures():
        column = COLUMNS.get(measure, measure)
        values = (costs if column in costs else designs)[column].to_numpy(np.float64)
        found.append(values if small else -values)
    return np.stack(found, axis=1)


def fronts_of(study: DesignStudy, designs: pd.DataFrame, costs: pd.DataFrame) -> Front | None:
    """The front of one machine; None where no design has a value of every measure."""
    values = values_of(study, designs, costs)
    known = np.isfinite(values).all(axis=1)
    if not known.any():
        return None
    rows = np.flatnonzero(front(values))
    rows = rows[np.argsort(values[rows, 0], kind="stable")]
    measures = tuple(measure for measure, _ in study.measures())
    best = {measure: int(rows[np.argmin(values[rows, place])]) for place, measure in enumerate(measures)}
    return Front(
        measures, tuple(rows.tolist()), int(rows[knee(values[rows])]), best, int((~known).sum())
    )


def spec_of(base: ModelSpec, skeletons: tuple[ModelSpec, ...], row: Any) -> ModelSpec:
    """A row of the table of designs as a model."""
    return with_mixture(
        skeletons[int(row["skeleton"])], f"{base.name}/{row['design']}", **{name: int(row[name]) for name in SHAPE}
    )


def config_fields(base: ModelSpec, model: ModelSpec) -> dict[str, Any]:
    """Fields of a Hugging Face `config.json` in which a design differs from its base.

    Spelt as in the base's own config where the catalog holds it, else as most configs spell them.
    """
    own = language_part(_config(base.name)) if base.name in model_names() else {}
    old, new = base.moe, model.moe
    pairs = (
        ("hidden", base.hidden, model.hidden), ("layers", len(base.layers), len(model.layers)),
        ("experts", old.num_experts, new.num_experts), ("top-k", old.top_k, new.top_k),
        ("expert width", old.intermediate, new.intermediate), ("latent width", old.latent, new.latent),
        ("shared width", old.shared_intermediate, new.shared_intermediate),
    )  # fmt: skip
    return {_spelt(what, own): after for what, before, after in pairs if before != after}


def _config(name: str) -> Mapping[str, object]:
    found = model_document(name)["config"]
    return found if isinstance(found, dict) else {}


def _spelt(what: str, config: Mapping[str, object]) -> str:
    return next((name for name in SPELLINGS[what] if name in config), _USUAL.get(what, SPELLINGS[what][0]))
