"""The study `replay`: a trace through every policy × prefetcher × capacity asked for, with the bounds beside them.

trace ─► passes ─► survey ─┐
model + hardware ─► costs ─┼─► one Engine a case ─► rows, layers ─► ReplayResult
cases (policy, prefetch, capacity) ─┘
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from ..errors import UsageError, unknown_name
from ..files import sha256_of
from ..sim.cache.core import CONTRACTS
from ..sim.capacity_split import SCOPES
from ..sim.engines.run import ENGINES
from ..sim.passes import build_passes
from ..sim.request_times import output_tokens
from ..traces.expert_trace import ExpertTrace
from .cases import Case, all_cases, cache_sizes
from .machine import prepare_machine
from .reporting import reporting_block
from .result import ReplayResult, sentence_of
from .runs import Runs, names_of
from .trace_files import loaded_trace

if TYPE_CHECKING:
    from ..sim.hardware import HardwareSpec
    from ..sim.model import ModelSpec
    from ..sim.profile import Profile

__all__ = ["ReplayResult", "replay"]

Progress = Callable[[int, int, str], None]


def replay(
    trace: ExpertTrace | str | Path,
    *,
    model: str | Path | ModelSpec | None = None,
    hardware: str | Path | HardwareSpec | None = None,
    profile: str | Path | Profile | None = None,
    policies: Sequence[str] = ("least-stale", "lru"),
    prefetch: Sequence[str] = ("none",),
    capacities: Sequence[str] = ("5%",),
    weights: str = "bf16",
    warm: bool = False,
    train_share: float = 0.0,
    scope: str = "global",
    contract: str = "slots",
    batch: int | None = None,
    seed: int = 0,
    tie_seed: int | None = None,
    context: int = 4096,
    experts_home: str = "host",
    prefetch_budget_bytes: int | None = None,
    decisions: str = "serial",
    miss: str = "load",
    engine: str = "numba",
    format: str | None = None,
    timeline: bool = True,
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> ReplayResult:
    """Replay an expert trace under each policy, prefetcher and capacity, and compare.

    `capacities` are shares of all routed experts ("5%"), bytes ("2GiB"), experts ("64") or "auto" (what `hardware`
    has left after dense weights, shared experts and the KV cache of `context` tokens for each of `batch` sequences).
    `profile` (a name of the catalog, a file, or a `Profile`) prices compute by measurements where it has them; without
    one the hardware sheet's roofline does. Without a model nothing is known of bytes; without a model and hardware
    nothing of times: then it counts.
    `train_share` is of the passes: in the first ones policies learn (`static:fit=train`, scope "fitted" and what learns as it
    goes) and nothing is counted.
    `batch=None` follows the trace's own steps where it has them, else one sequence at a time. `decisions` are "serial" with the
    step, "beside" it, or "free". `miss` is what a miss does: "load", "host", "lower", "substitute", "skip" (the
    last three change the output, and a row says which share of the gate weight). `out` keeps the result in a directory.
    `progress` is told (runs done, runs in all, what runs now).

    Raises `UsageError` for what cannot be, before anything runs.
    """
    for kind, value, known in (
        ("contract", contract, CONTRACTS),
        ("scope", scope, SCOPES),
        ("engine", engine, ENGINES),
        ("decisions", decisions, ("serial", "beside", "free")),
    ):
        if value not in known:
            raise unknown_name(kind, value, known)
    loaded, path = loaded_trace(trace, format)
    passes = build_passes(loaded, batch)
    machine = prepare_machine(
        loaded, passes, model=model, hardware=hardware, profile=profile, weights=weights, context=context, batch=batch or 1,
        want_auto="auto" in capacities, experts_home=experts_home,
    )  # fmt: skip
    sizes, warnings = cache_sizes(
        capacities, num_layers=loaded.num_layers, num_experts=loaded.num_experts, top_k=loaded.top_k, scope=scope,
        contract=contract, expert_bytes=machine.expert_bytes, auto_experts=machine.auto_experts,
    )  # fmt: skip
    if prefetch_budget_bytes is not None and machine.expert_bytes is None:
        raise UsageError(
            "a prefetch budget is in bytes, and only a model says how large an expert is: give a model"
        )
    options = {
        "policies": list(policies), "prefetch": list(prefetch), "capacities": list(capacities), "weights": weights,
        "warm": warm, "train_share": train_share, "scope": scope, "contract": contract, "batch": batch, "seed": seed,
        "tie_seed": tie_seed, "context": context, "experts_home": experts_home, "prefetch_budget_bytes": prefetch_budget_bytes,
        "decisions": decisions, "miss": miss, "engine": engine,
    }  # fmt: skip
    runs = Runs(loaded, passes, machine, options)
    if runs.miss.needs_weights and loaded.weights_TLK is None:
        raise UsageError(f"miss {miss!r} goes by gate weights, and this trace has none")
    cases = all_cases(policies, prefetch, sizes, loaded.num_layers * loaded.num_experts)
    for case in cases:
        if case.prefetch.needs:
            runs.prepare(case)  # refuses here, before anything has run, what the trace cannot serve
    rows, layers = [], []
    for number, case in enumerate(cases):
        if progress is not None:
            progress(number, len(cases), f"{case.policy.spec} at {case.size.label}")
        row, of_layers = runs.run(case)
        rows.append(row)
        layers.extend(of_layers)
    if progress is not None:
        progress(len(cases), len(cases), "done")
    order = _order(rows, has_times=machine.costs is not None)
    rows = [rows[index] for index in order]
    labels = [size.label for size in sizes]
    result = ReplayResult(
        rows=pd.DataFrame(rows),
        layers=pd.DataFrame(layers),
        reporting=reporting_block(
            rows=rows, sizes=sizes, look=runs.look, num_experts=loaded.num_experts, top_k=loaded.top_k,
            logical=runs.logical, options=options, scheduling=passes.scheduling, decisions=runs.decisions,
            warm_passes=runs.warm_passes, output_tokens=output_tokens(passes),
            pools=runs.pools, training_passes=runs.training_passes,
        ),
        run={
            "version": _version(),
            "trace": _trace_facts(loaded, path),
            "model": machine.model_facts,
            "hardware": machine.hardware_facts,
            "options": options,
            "costs": machine.cost_facts,
            "warnings": [*warnings, *machine.warnings, *runs.warnings, *loaded.notes],
            "sentence": sentence_of(rows, labels, has_times=machine.costs is not None),
        },
        timeline=runs.timeline(_for_timeline(rows, cases, labels)) if timeline and machine.costs is not None else None,
    )  # fmt: skip
    if out is not None:
        result.save(out)
    return result


def _order(rows: Sequence[Mapping[str, Any]], *, has_times: bool) -> list[int]:
    """Bounds first; then by capacity; then by TPOT where times are known, else by misses; then by name."""

    def key(index: int) -> tuple[Any, ...]:
        row = rows[index]
        if row["is_bound"] and row["prefetch"] == "none":
            return (0, row["capacity_experts"] if row["policy"] != "unbounded" else -1, row["policy"], "")
        tpot = row["tpot_s"] if has_times and row["tpot_s"] is not None else 0.0
        return (1, row["capacity_experts"], tpot, row["misses"], row["policy"], row["prefetch"])

    return sorted(range(len(rows)), key=lambda index: tuple(map(_sortable, key(index))))


def _sortable(value: Any) -> tuple[int, Any]:
    return (1, value) if isinstance(value, str) else (0, value)


def _for_timeline(rows: Sequence[Mapping[str, Any]], cases: Sequence[Case], labels: Sequence[str]) -> Case:
    """The row that comes first among the user's own at the smallest capacity; a bound where there is no other."""
    own = [row for row in rows if not row["is_bound"] and row["capacity_label"] == labels[0]] or list(rows)
    wanted = {key: own[0][key] for key in ("policy", "prefetch", "capacity_label")}
    return next(case for case in cases if names_of(case) == wanted)


def _trace_facts(trace: ExpertTrace, path: Path | None) -> dict[str, Any]:
    return {
        "path": None if path is None else path.name,
        "sha256": None if path is None else sha256_of(path),
        "model": trace.model,
        "source": trace.source,
        "licence": trace.licence,
        "synthetic": trace.synthetic,
        "tokens": trace.num_tokens,
        "layers": trace.num_layers,
        "layer_ids": trace.layer_ids_L.tolist(),
        "num_experts": trace.num_experts,
        "top_k": trace.top_k,
        "sequences": trace.num_sequences,
    }


def _version() -> str:
    from .. import __version__

    return __version__
