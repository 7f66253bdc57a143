"""What a calibration found: tables of measurements, the spread between rounds, the share of the measured roof."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..sim.ops import Copy, Operation, StorageRead
from .calibration_journal import Visit
from .calibration_plan import Case

if TYPE_CHECKING:
    import pandas as pd

    from ..kernels.roof import Roof
    from ..sim.measurement import Measurements

_SOURCE = "workbench calibrate: kernels of this package on this machine, median of the quietest round"


@dataclass(frozen=True, slots=True)
class OperationSummary:
    """One line of the report. Shares and errors are fractions; what could not be told is None."""

    operation: str
    rows: int
    held_out_rows: int
    spread_median: float | None
    """Median over shapes of (p75 − p25) / median of the rounds' medians: how well a time repeats."""
    spread_p90: float | None
    roof_share_median: float | None
    """Median over shapes of floor / measured; None for storage and links, whose roof is not memory."""
    median_ape: float | None = None
    p90_ape: float | None = None
    coverage_90: float | None = None

    @property
    def passes(self) -> bool | None:
        """Held-out errors within 7 % and 20 %, or twice the run-to-run spread where that is larger."""
        if self.median_ape is None or self.p90_ape is None:
            return None
        middle = max(0.07, 2 * (self.spread_median or 0.0))
        high = max(0.20, 2 * (self.spread_p90 or 0.0))
        return self.median_ape <= middle and self.p90_ape <= high


@dataclass(frozen=True)
class CalibrationResult:
    """`tables`: operation → all its rows; column `held_out` marks those that must not be fitted."""

    tables: Mapping[str, Measurements]
    summaries: tuple[OperationSummary, ...]
    roof: Roof
    environment: Mapping[str, Any]
    folder: Path
    unmeasured: tuple[str, ...] = field(default=())
    """Cases that the budget did not reach; the same call goes on with them."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Cases without a time because they do not fit into memory → the reason."""
    profile: Path | None = None
    """Header of the saved profile."""

    @property
    def slowest(self) -> OperationSummary | None:
        """The operation with the smallest share of the roof."""
        known = [summary for summary in self.summaries if summary.roof_share_median is not None]
        return min(known, key=lambda summary: summary.roof_share_median or 0.0, default=None)

    def to_dict(self) -> dict[str, Any]:
        """One JSON document: per operation what `lines` prints, numbers as fractions, unknown ones absent."""
        operations = {
            one.operation: {
                k: v
                for k, v in {**asdict(one), "passes": one.passes}.items()
                if v is not None and k != "operation"
            }
            for one in self.summaries
        }
        slowest = None if self.slowest is None else self.slowest.operation
        found = {
            "operations": operations, "roof": self.roof.to_dict(), "slowest": slowest, "unmeasured": len(self.unmeasured),
            "skipped": dict(self.skipped) or None,
            "folder": str(self.folder), "profile": None if self.profile is None else str(self.profile),
            "environment": dict(self.environment),
        }  # fmt: skip
        return {name: value for name, value in found.items() if value is not None}

    def lines(self) -> list[str]:
        """A table for people: one line an operation, then the roof, the slowest kernel, and what is missing."""
        head = ("operation", "rows", "held out", "median", "p90", "cover", "spread", "p90", "of roof", "")
        rows = [head] + [
            (
                one.operation, str(one.rows), str(one.held_out_rows), _percent(one.median_ape), _percent(one.p90_ape),
                _percent(one.coverage_90), _percent(one.spread_median), _percent(one.spread_p90),
                _percent(one.roof_share_median), {None: "", True: "ok", False: "above the bar"}[one.passes],
            )
            for one in self.summaries
        ]  # fmt: skip
        widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
        found = [
            "  ".join(
                cell.ljust(w) if not column else cell.rjust(w)
                for column, (cell, w) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        flops = ", ".join(
            f"{value / 1e9:.0f} GFLOP/s {name}" for name, value in self.roof.flops_per_s.items()
        )
        found.append(f"measured roof: {self.roof.bytes_per_s / 1e9:.1f} GB/s read, {flops}")
        if self.slowest is not None:
            found.append(
                f"slowest kernel against the roof: {self.slowest.operation}, {_percent(self.slowest.roof_share_median)} of it"
            )
        if self.unmeasured:
            found.append(
                f"{len(self.unmeasured)} shapes were not reached within the budget: the same command goes on with them"
            )
        found += [f"skipped: {key}: {reason}" for key, reason in self.skipped.items()]
        return found


def collect(
    cases: Sequence[Case], visits: Iterable[Visit], roof: Roof, environment: Mapping[str, Any], folder: Path
) -> CalibrationResult:
    """Tables and summaries of what a journal holds for these cases. Tables are written into `folder`."""
    by_key: dict[str, list[Visit]] = defaultdict(list)
    skipped: dict[str, str] = {}
    for visit in visits:
        if visit.skipped:
            skipped[visit.key] = visit.skipped
        else:
            by_key[visit.key].append(visit)
    measured = [case for case in cases if case.key in by_key]
    if not measured:
        why = next(iter(skipped.values()), None)
        raise UsageError(f"nothing was measured: {f'the first reason: {why}' if why else 'allow more time'}")
    tables, summaries = {}, []
    for name in dict.fromkeys(case.name for case in measured):
        chosen = [case for case in measured if case.name == name]
        table = _table(name, chosen, by_key, environment)
        table.save(folder / name)
        tables[name] = table
        summaries.append(_summary(name, chosen, table.rows, by_key, roof))
    skipped = {case.key: skipped[case.key] for case in cases if case.key in skipped and case.key not in by_key}
    unmeasured = tuple(case.key for case in cases if case.key not in by_key and case.key not in skipped)
    return CalibrationResult(tables, tuple(summaries), roof, environment, folder, unmeasured, skipped)


def measured_system(environment: Mapping[str, Any]) -> str:
    """The name of what was measured: the GPU, or the processor."""
    known = (environment[key] for key in ("device_name", "cpu", "machine") if environment.get(key))
    return str(next(known, "this machine"))


def seen_by_driver(visits: Iterable[Visit]) -> dict[str, float]:
    """Lowest and highest of what the driver told during the visits; nothing where it told nothing."""
    seen: dict[str, list[float]] = defaultdict(list)
    for visit in visits:
        for name, value in (visit.telemetry or {}).items():
            seen[name].append(value)
    return {f"{name}_{end.__name__}": end(values) for name, values in seen.items() for end in (min, max)}


def _has_memory_roof(operation: Operation) -> bool:
    """Whether its bytes move within one memory; storage and copies over a link are bounded by those."""
    return not isinstance(operation, StorageRead) and not (
        isinstance(operation, Copy) and operation.source != operation.target
    )


def _table(
    name: str, cases: Sequence[Case], by_key: Mapping[str, Sequence[Visit]], environment: Mapping[str, Any]
) -> Measurements:
    import pandas as pd

    from ..sim.measurement import Measurements

    rows = []
    for case in cases:
        visits = by_key[case.key]
        samples = [sample for one in samples_by_round(visits) for sample in one]
        first = visits[0].first_call_s
        rows.append(
            {
                **case.shape, "seconds": quietest_s(visits), "samples": samples, "first_call_s": first,
                "system": measured_system(environment), "framework": "codesign",
                "version": str(environment.get("torch", "")), "kernel": visits[0].kernel, "held_out": case.held_out,
            }
        )  # fmt: skip
    return Measurements(name, pd.DataFrame(rows), _SOURCE, environment=environment)


def _summary(
    name: str, cases: Sequence[Case], rows: pd.DataFrame, by_key: Mapping[str, Sequence[Visit]], roof: Roof
) -> OperationSummary:
    spreads = np.array([spread for case in cases if (spread := run_spread(by_key[case.key])) is not None])
    shares = np.array(
        [
            roof.floor_s(case.operation) / took
            for case, took in zip(cases, rows["seconds"].to_numpy(np.float64), strict=True)
            if _has_memory_roof(case.operation)
        ]
    )
    return OperationSummary(
        operation=name,
        rows=len(cases),
        held_out_rows=sum(case.held_out for case in cases),
        spread_median=_quantile(spreads, 0.5),
        spread_p90=_quantile(spreads, 0.9),
        roof_share_median=_quantile(shares, 0.5),
    )


def run_spread(visits: Sequence[Visit]) -> float | None:
    """(p75 − p25) / median of the rounds' medians; None for a single round."""
    rounds = samples_by_round(visits)
    if len(rounds) < 2:
        return None
    low, middle, high = np.quantile([np.median(samples) for samples in rounds], [0.25, 0.5, 0.75])
    return float((high - low) / middle)


def quietest_s(visits: Sequence[Visit]) -> float:
    """The median of the quietest round: what the machine takes when nobody disturbs it.

    Neighbours only ever add time. On a machine with others at work, medians over all rounds were off by twice as much on
    held-out shapes; a single smallest sample may be a fluke of the clock.
    """
    return float(min(np.median(samples) for samples in samples_by_round(visits)))


def samples_by_round(visits: Sequence[Visit]) -> list[list[float]]:
    """Raw samples, a list a round, in the order of the rounds."""
    rounds: dict[int, list[float]] = defaultdict(list)
    for visit in visits:
        rounds[visit.round] += visit.samples_s
    return [rounds[number] for number in sorted(rounds)]


def _quantile(values: NDArray[np.float64], share: float) -> float | None:
    return float(np.quantile(values, share)) if len(values) else None


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value * 100:.1f} %"
