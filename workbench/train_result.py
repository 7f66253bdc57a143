"""What a set of trained designs showed: losses with intervals over seeds, and each design against the base, in pairs.

Seeds vary first weights and the order of the text. Intervals are Student's, at 95 %, over seeds; they say nothing about
other texts, sizes or recipes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import InputFileError
from .sweep_statistics import Interval

if TYPE_CHECKING:
    import pandas as pd

KIND, SCHEMA = "trained designs", 1
FEWEST_PAIRS = 3
"""Seeds below which nothing is called better or worse."""
SAME_FLOPS = 0.02
"""Designs whose operations a token differ by no more are compared at the same cost."""

Verdict = Literal["beats", "loses", "no difference shown", "untested"]


def student_interval(values: Sequence[float]) -> Interval:
    """Mean and 95 % interval of Student's t; low and high are None for one value, all three for none."""
    if not values:
        return Interval(None, None, None)
    mean = sum(values) / len(values)
    if len(values) < 2:
        return Interval(mean, None, None)
    from scipy.stats import t

    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    half = float(t.ppf(0.975, len(values) - 1)) * deviation / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


@dataclass(frozen=True, slots=True)
class TrainedDesign:
    """One design over its seeds. Losses are in nats a token of held-out text; lower is better."""

    name: str
    shape: str
    """Its mixture in words."""
    total_params: int
    active_params: int
    flops_per_token: int
    """Operations with weights, one forward pass."""
    mixing_flops_per_token: float
    """Of attention over the context that was trained with, one forward pass."""
    losses: Mapping[int, float]
    """By seed."""
    errors: Mapping[int, str]
    """By seed: why a run has no loss."""
    training_seconds: float | None
    """Mean over seeds, of the steps alone, on one thread beside the other workers; None where no run ended."""
    tokens_per_s: float | None
    text_error: float | None
    """Standard error of a loss over the windows of held-out text, mean over seeds; common to all designs."""
    balance: float | None
    """Load-balance loss at the end, mean over seeds: 1 is even."""
    curves: Mapping[int, Sequence[tuple[int, float]]]
    """By seed: (tokens so far, training loss averaged since the point before)."""

    @property
    def loss(self) -> Interval:
        return student_interval(list(self.losses.values()))

    def to_dict(self) -> dict[str, Any]:
        loss = self.loss
        row = {
            "design": self.name, "shape": self.shape, "total_params": self.total_params,
            "active_params": self.active_params, "flops_per_token": self.flops_per_token,
            "mixing_flops_per_token": self.mixing_flops_per_token, "loss": loss.mean, "loss_low": loss.low,
            "loss_high": loss.high, "seeds": len(self.losses), "losses": dict(self.losses) or None,
            "errors": dict(self.errors) or None, "training_seconds": self.training_seconds,
            "tokens_per_s": self.tokens_per_s, "text_error": self.text_error, "balance": self.balance,
            "curves": {seed: [list(point) for point in curve] for seed, curve in self.curves.items()} or None,
        }  # fmt: skip
        return {name: value for name, value in row.items() if value is not None}


@dataclass(frozen=True, slots=True)
class DesignComparison:
    """A design against the base, seed by seed: both saw the same text in the same order."""

    design: str
    base: str
    differences: Mapping[int, float]
    """Loss of the design less that of the base, by seed; below 0 the design is better."""
    flops_ratio: float
    """Operations of the design ÷ those of the base, with weights and of mixing together."""

    @property
    def difference(self) -> Interval:
        return student_interval(list(self.differences.values()))

    @property
    def verdict(self) -> Verdict:
        """Of the design. "no difference shown": the interval holds 0. "untested": fewer than three seeds."""
        found = self.difference
        if len(self.differences) < FEWEST_PAIRS or found.low is None or found.high is None:
            return "untested"
        return "beats" if found.high < 0 else "loses" if found.low > 0 else "no difference shown"

    def to_dict(self) -> dict[str, Any]:
        found = self.difference
        row = {
            "design": self.design, "base": self.base, "verdict": self.verdict, "difference": found.mean,
            "difference_low": found.low, "difference_high": found.high, "pairs": len(self.differences),
            "differences": dict(self.differences) or None, "flops_ratio": self.flops_ratio,
        }  # fmt: skip
        return {name: value for name, value in row.items() if value is not None}

    def sentence(self) -> str:
        found, pairs = self.difference, len(self.differences)
        if found.mean is None:
            return f"{self.design} against {self.base}: no seed has both losses."
        size = f"{found.mean:+.4f} nats a token"
        if found.low is not None and found.high is not None:
            size += f", 95 % interval {found.low:+.4f} to {found.high:+.4f}"
        seeds = f"{pairs} seed{'s' * (pairs != 1)}"
        if self.verdict == "untested":
            return f"{self.design} against {self.base}: untested with {seeds} ({size})."
        if self.verdict == "no difference shown":
            return f"{self.design} against {self.base}: no difference shown ({size}, {seeds})."
        return f"{self.design} {self.verdict} against {self.base} ({size}, {seeds})."


@dataclass(frozen=True, slots=True)
class TrainedDesigns:
    """A finished set, in its folder."""

    folder: Path
    base: str
    designs: tuple[TrainedDesign, ...]
    facts: Mapping[str, Any]
    """Text, tokens, recipe and versions: what every run had in common."""
    seeds: tuple[int, ...]
    seconds: float | None = None
    """How long this call took; None for a set that was read back."""
    ran: int = 0
    """Runs that this call finished; the others stood in the journal."""
    _by_name: dict[str, TrainedDesign] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {design.name: design for design in self.designs})

    def __getitem__(self, name: str) -> TrainedDesign:
        return self._by_name[name]

    @property
    def comparisons(self) -> tuple[DesignComparison, ...]:
        """Every other design against the base."""
        base = self[self.base]
        return tuple(
            DesignComparison(
                design.name, base.name,
                {seed: loss - base.losses[seed] for seed, loss in design.losses.items() if seed in base.losses},
                (design.flops_per_token + design.mixing_flops_per_token)
                / (base.flops_per_token + base.mixing_flops_per_token),
            )
            for design in self.designs
            if design.name != base.name
        )  # fmt: skip

    @property
    def table(self) -> pd.DataFrame:
        """One row a design, its comparison with the base beside it; losses by seed and curves left out."""
        import pandas as pd

        against = {one.design: one.to_dict() for one in self.comparisons}
        left_out = ("losses", "curves", "errors", "differences", "base")
        rows = [design.to_dict() | against.get(design.name, {}) for design in self.designs]
        return pd.DataFrame([{k: v for k, v in row.items() if k not in left_out} for row in rows])

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know before believing the verdicts."""
        found = [
            f"{one.design} uses {one.flops_ratio:.1%} of the operations of {one.base}: not the same active cost"
            for one in self.comparisons
            if abs(one.flops_ratio - 1) > SAME_FLOPS
        ]
        for design in self.designs:
            found += [
                f"{design.name}, seed {seed}, has no loss: {why}" for seed, why in design.errors.items()
            ]
        tested = [one for one in self.comparisons if one.verdict != "untested"]
        if len(tested) < len(self.comparisons):
            found.append(f"nothing is called better or worse with fewer than {FEWEST_PAIRS} seeds")
        if len(tested) > 1:
            wrong = 1 - 0.95 ** len(tested)
            found.append(
                f"each interval holds by itself at 95 %: among {len(tested)} equal designs a difference would be "
                f"shown in up to {wrong:.0%} of such sets"
            )
        return tuple(found)

    def sentence(self) -> str:
        return " ".join(one.sentence() for one in self.comparisons)

    def to_dict(self) -> dict[str, Any]:
        """The document that `run.json` holds; what is unknown is absent."""
        return {
            "kind": KIND, "schema": SCHEMA, "base": self.base, "seeds": list(self.seeds), "facts": dict(self.facts),
            "designs": [design.to_dict() for design in self.designs],
            "comparisons": [one.to_dict() for one in self.comparisons], "notes": list(self.notes),
        }  # fmt: skip


def load_trained_designs(folder: str | Path) -> TrainedDesigns:
    """Read a finished set back. Raises `InputFileError` for a folder that holds none, or an unfinished one."""
    source = Path(folder)
    path = source / "run.json"
    if not path.exists():
        unfinished = (source / "journal.jsonl").exists()
        raise InputFileError(source, "holds an unfinished set of runs" if unfinished else "holds no run.json")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["kind"] != KIND or found["schema"] != SCHEMA:
            raise InputFileError(path, f"holds no {KIND} of schema {SCHEMA}")
        designs = tuple(_design(row) for row in found["designs"])
        return TrainedDesigns(source, found["base"], designs, found["facts"], tuple(found["seeds"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InputFileError):
            raise
        raise InputFileError(path, f"is broken: {error}") from error


def _design(row: Mapping[str, Any]) -> TrainedDesign:
    curves = {
        int(seed): tuple((int(at), float(loss)) for at, loss in curve)
        for seed, curve in row.get("curves", {}).items()
    }
    return TrainedDesign(
        row["design"], row["shape"], row["total_params"], row["active_params"], row["flops_per_token"],
        row["mixing_flops_per_token"], {int(seed): loss for seed, loss in row.get("losses", {}).items()},
        {int(seed): why for seed, why in row.get("errors", {}).items()}, row.get("training_seconds"),
        row.get("tokens_per_s"), row.get("text_error"), row.get("balance"), curves,
    )  # fmt: skip
