"""The study `validate`: run a configuration for real on this machine, simulate it, and put the two side by side.

groups ─► run_rounds (fit, band and judged cases, interleaved) ─► fit ─► predict ─► ValidationResult

The policy code is one object in both; costs are fitted on other runs over other traces than those that are judged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UsageError
from ..files import sha256_of
from .validate_band import LEAST_SCORES, half_width, scores_of, spread_of
from .validate_cases import TIERS, Case, Group, Link, calibration_cases, cut_trace, suite_groups, twin_trace
from .validate_fit import Fitted, Predicted, fit, predict
from .validate_inputs import inputs_of
from .validate_result import METRICS, Metric, ScenarioResult, Timelines, ValidationResult
from .validate_run import Measured, Progress, run_rounds, without_time
from .validate_segments import simulated_segments

if TYPE_CHECKING:
    from ..sim.model import ModelSpec
    from ..traces.expert_trace import ExpertTrace

__all__ = ["ValidationResult", "validate", "validate_suite"]

LEAST_REPEATS = 7
_AS_DEFAULT = (
    "contract", "scope", "miss", "warm", "train_share", "prefetch_budget_bytes", "experts_home", "tie_seed",
)  # fmt: skip
"""Of a scenario: what the runtime has one way of only."""
_BAND_RUNS = 10


def validate(
    scenario: str | Path | None = None,
    *,
    trace: ExpertTrace | str | Path | None = None,
    model: str | Path | ModelSpec | None = None,
    policies: Sequence[str] = ("least-stale", "lru"),
    prefetch: Sequence[str] = ("none",),
    capacities: Sequence[str] = ("25%",),
    batch: int | None = None,
    tier: str = "paced",
    link_bytes_per_s: float = 4e9,
    link_latency_s: float = 20e-6,
    dtype: str = "fp32",
    tokens: int = 64,
    repeats: int = LEAST_REPEATS,
    within: float | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    limit_s: float = 30.0,
    timeline: bool = False,
    progress: Progress | None = None,
) -> ValidationResult:
    """Run a scenario for real and compare. `scenario` is a file as `replay` takes it; else `trace` and `model` say what runs.

    `tier` is where experts live: "file" (read past the page cache, in `folder`), "host" (memory) or "paced" (memory behind a
    link of `link_bytes_per_s` and `link_latency_s`). `tokens` cuts the trace, so that a run stays short. `within` is the
    largest TPOT error that is still right (0.1 is 10 %): a verdict needs it before the run. `limit_s` bounds every wait.
    `timeline` keeps what computed, waited and was copied in a few passes, simulated and measured.

    Raises `UsageError` for what cannot be, `RunError` where the tier fails.
    """
    _check(repeats, within)
    options: dict[str, Any] = {
        "trace": trace, "model": model, "policies": policies, "prefetch": prefetch, "capacities": capacities,
        "batch": batch, "seed": seed,
    }  # fmt: skip
    if scenario is not None:
        if trace is not None or model is not None:
            raise UsageError("a scenario names its trace and model itself: give either the file or the two")
        options |= _of_scenario(scenario)
    if options["trace"] is None or options["model"] is None:
        raise UsageError("a validation needs a trace and a model (or a scenario that names both)")
    group = _group(options, Link(tier, link_bytes_per_s, link_latency_s), dtype, tokens)
    runs = run_rounds(
        [group],
        repeats=repeats,
        folder=folder,
        limit_s=limit_s,
        seed=options["seed"],
        timeline=timeline,
        progress=progress,
    )
    return compare([group], runs, within=within, seed=options["seed"])


def validate_suite(
    *,
    repeats: int = LEAST_REPEATS,
    within: float | None = None,
    tiers: Sequence[str] = TIERS,
    groups: int | None = None,
    tokens: int = 28,
    seed: int = 0,
    folder: str | Path | None = None,
    limit_s: float = 30.0,
    timeline: bool = False,
    progress: Progress | None = None,
) -> ValidationResult:
    """The built-in matrix: policies × capacities × prefetchers × batch × shapes × tiers, 27 scenarios in nine groups.

    `tiers`, `groups` (of each tier) and `tokens` make it shorter.
    """
    _check(repeats, within)
    chosen = suite_groups(tiers=tiers, groups=groups, tokens=tokens, seed=seed)
    runs = run_rounds(
        chosen,
        repeats=repeats,
        folder=folder,
        limit_s=limit_s,
        seed=seed,
        timeline=timeline,
        progress=progress,
    )
    return compare(chosen, runs, within=within, seed=seed)


def compare(
    groups: Sequence[Group], runs: Sequence[Measured], *, within: float | None = None, seed: int = 0
) -> ValidationResult:
    """Fit each group on its `fit` runs, take bands from all `band` runs together, and judge the rest."""
    of_group = {group.name: [run for run in runs if run.prepared.group is group] for group in groups}
    fitted = {
        name: fit([run for run in mine if run.prepared.case.purpose == "fit"])
        for name, mine in of_group.items()
    }
    bands = _bands(fitted, of_group)
    scenarios = [
        _judge(run, predict(fitted[name], run.prepared), bands)
        for name, mine in of_group.items()
        for run in mine
        if run.prepared.case.purpose == "judged"
    ]
    return ValidationResult(
        tuple(scenarios), within, _calibration(fitted, bands), _environment(), inputs_of(groups, seed)
    )


def _bands(
    fitted: Mapping[str, Fitted], of_group: Mapping[str, Sequence[Measured]]
) -> dict[str, float | None]:
    """Half-widths in ln of each metric, and of `layer`, from whole calibration runs that were not fitted on."""
    scores: dict[str, list[float]] = {name: [] for name in (*METRICS, "layer")}
    for name, mine in of_group.items():
        for run in mine:
            if run.prepared.case.purpose != "band":
                continue
            found = predict(fitted[name], run.prepared)
            for metric in METRICS:
                pair = [_median(run, metric)], [getattr(found, metric)]
                if None not in (*pair[0], *pair[1]):
                    scores[metric] += scores_of(*pair)  # type: ignore[arg-type]
            scores["layer"] += scores_of(_events(run).ravel().tolist(), found.event_ns.ravel().tolist())
    return {name: half_width(values) for name, values in scores.items()}


def _judge(run: Measured, found: Predicted, bands: Mapping[str, float | None]) -> ScenarioResult:
    prepared, ledger = run.prepared, run.ledger
    assert ledger is not None
    metrics = []
    for name in METRICS:
        predicted, measured = getattr(found, name), _median(run, name)
        if predicted is None or measured is None:
            continue
        width = bands[name]
        low, high = (
            (None, None) if width is None else (predicted * math.exp(-width), predicted * math.exp(width))
        )
        values = [getattr(sample, name) for sample in run.samples]
        metrics.append(Metric(name, predicted, low, high, measured, spread_of(values)))
    events, width = _events(run), bands["layer"]
    layers_equal = run.layer_counts is not None and _same_layers(found.result.layer_counts, run.layer_counts)
    overlaps = [sample.overlap for sample in run.samples if sample.overlap is not None]
    inside = None
    if width is not None:
        ratio = np.abs(np.log(np.maximum(events, 1) / np.maximum(found.event_ns, 1)))
        inside = int((ratio <= width).sum())
    return ScenarioResult(
        name=prepared.name, group=prepared.group.name, tier=prepared.group.link.tier, policy=prepared.case.policy,
        prefetch=prepared.case.prefetch, capacity_experts=prepared.case.experts, metrics=tuple(metrics),
        ledgers_equal=run.ledgers_repeat and layers_equal and without_time(found.result.ledger) == without_time(ledger),
        late_simulated=found.result.ledger.late or 0, late_measured=float(np.median([s.late for s in run.samples])),
        waves=ledger.waves, prefetch_issued=ledger.prefetch_issued, shares_predicted=found.shares,
        shares_measured={
            name: float(np.median([sample.shares[name] for sample in run.samples])) for name in found.shares
        },
        overlap=float(np.median(overlaps)) if overlaps else None,
        layer_ratio=tuple((found.event_ns.sum(axis=0) / events.sum(axis=0)).tolist()), layer_values=int(events.size),
        layer_values_inside=inside, repeats=len(run.samples),
        layer_ids=tuple(prepared.source.trace.layer_ids_L.tolist()), timelines=_timelines(run, found),
    )  # fmt: skip


def _timelines(run: Measured, found: Predicted) -> Timelines | None:
    """Simulated segments beside those of the repeat that is most like the median; None where none were kept."""
    if not run.recorded:
        return None
    simulated = simulated_segments(run.prepared, found.setup)
    passes = tuple(sorted({one["pass"] for one in simulated}))
    makespans = np.array([sample.makespan_s for sample in run.samples])
    shown = int(np.argmin(np.abs(makespans - np.median(makespans))))
    measured = [one for one in run.recorded[shown] if one["pass"] in passes]
    return Timelines(passes, shown + 1, float(makespans[shown]), tuple(simulated), tuple(measured))


def _same_layers(simulated: np.ndarray[Any, Any], measured: np.ndarray[Any, Any]) -> bool:
    """[L, 5] counts of layers, hits and late misses taken together."""

    def timeless(counts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.column_stack((counts[:, 0] + counts[:, 1], counts[:, 2:]))

    return bool(np.array_equal(timeless(simulated), timeless(measured)))


def _median(run: Measured, metric: str) -> float | None:
    values = [getattr(sample, metric) for sample in run.samples]
    return None if None in values else float(np.median(values))


def _events(run: Measured) -> np.ndarray[Any, Any]:
    """[P, L] median over repeats of each layer's time in each pass, ns."""
    median: np.ndarray[Any, Any] = np.median([sample.event_ns for sample in run.samples], axis=0)
    return median


def _check(repeats: int, within: float | None) -> None:
    if repeats < LEAST_REPEATS:
        raise UsageError(f"a spread needs at least {LEAST_REPEATS} repeats, got {repeats}")
    if within is not None and not 0 < within < 10:
        raise UsageError(f"within is a share such as 0.1 for 10 %, got {within}")


def _of_scenario(path: str | Path) -> dict[str, Any]:
    """What a scenario file says of a run, its files looked up beside it. Refuses what the runtime does not have."""
    from .scenario import load_scenario

    found, folder = load_scenario(path), Path(path).resolve().parent
    for name in _AS_DEFAULT:
        value, default = getattr(found, name), type(found).model_fields[name].default
        if value != default:
            raise UsageError(f"{path}: {name} = {value!r}, and the runtime has {default!r} only: leave it out")
    model = found.model
    if model is not None and (folder / model).is_file():
        model = str(folder / model)
    return {
        "trace": folder / found.trace, "model": model, "policies": found.policies, "prefetch": found.prefetch,
        "capacities": found.capacities, "batch": found.batch, "seed": found.seed,
    }  # fmt: skip


def _group(options: Mapping[str, Any], link: Link, dtype: str, tokens: int) -> Group:
    """One group: the scenario's own cases on its trace, calibration cases on twins of it."""
    from ..kernels.runtime.weights import check_supported
    from ..sim.catalog import load_model
    from ..sim.model import ModelSpec
    from ..traces import read_trace
    from ..traces.expert_trace import ExpertTrace
    from .cases import cache_sizes

    source, named = options["trace"], options["model"]
    trace = source if isinstance(source, ExpertTrace) else read_trace(Path(source))
    trace = cut_trace(trace, tokens)
    spec = named if isinstance(named, ModelSpec) else load_model(str(named))
    check_supported(spec)
    shape = (len(spec.moe_layer_ids), spec.num_experts, spec.top_k)
    if shape != (trace.num_layers, trace.num_experts, trace.top_k):
        raise UsageError(
            f"model {spec.name} has {shape[0]} MoE layers × {shape[1]} experts, top-{shape[2]}; the trace "
            f"{trace.num_layers} × {trace.num_experts}, top-{trace.top_k}"
        )
    bytes_each = {"fp32": 4, "bf16": 2}.get(dtype, 4) * spec.moe.expert_weights
    sizes, _ = cache_sizes(
        options["capacities"], num_layers=trace.num_layers, num_experts=trace.num_experts, top_k=trace.top_k,
        scope="global", contract="slots", expert_bytes=bytes_each, auto_experts=None,
    )  # fmt: skip
    judged = [
        Case(policy, ahead, size.experts)
        for size in sizes
        for ahead in options["prefetch"]
        for policy in options["policies"]
    ]
    rng = np.random.default_rng((options["seed"], 1))
    traces = {"fit": twin_trace(trace, rng), "band": twin_trace(trace, rng), "judged": trace}
    calibration = calibration_cases(trace.num_layers, trace.num_experts, trace.top_k, _BAND_RUNS)
    return Group(
        f"{spec.name}, {link.label}",
        spec,
        link,
        options["batch"],
        traces,
        (*calibration, *judged),
        dtype,
        {}
        if isinstance(source, ExpertTrace)
        else {"file": Path(source).name, "sha256": sha256_of(Path(source))},
    )


def _calibration(fitted: Mapping[str, Fitted], bands: Mapping[str, float | None]) -> dict[str, Any]:
    """What the predictions stand on, in seconds."""
    of_groups = {
        name: {
            "copy_s": one.copy_ns / 1e9,
            "copy_timed_s": None if one.copy_direct_ns is None else one.copy_direct_ns / 1e9,
            "decision_s": one.decision_ns / 1e9,
            "expert_one_token_s": float(one.expert_ns_N[min(1, len(one.expert_ns_N) - 1)]) / 1e9,
            "before_median_s": float(np.median(one.before_ns_PC[:, 1])) / 1e9,
            "expert_bytes": one.expert_bytes,
        }
        for name, one in fitted.items()
    }
    widths = {name: math.expm1(width) for name, width in bands.items() if width is not None}
    return {"groups": of_groups, "band_half_width": widths, "least_runs_for_a_band": LEAST_SCORES}


def _environment() -> dict[str, Any]:
    from ..kernels.environment import environment

    return environment(1).to_dict()
