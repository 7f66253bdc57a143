"""The reporting block: what must stand beside a hit rate so that it can be placed and compared.

The items are those of the replay contracts: contract, unit, order, scope, regime, sharing, ties, decision costs,
oracles and shares, bytes. "unknown" where the trace or the run does not say; nothing is filled with zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..sim.engines.survey import Survey
from .cases import CacheSize

UNKNOWN = "unknown"
_UNIT = {
    "slots": "event: all experts of a layer's pass against the state at its start",
    "fused": "event: all experts of a layer's pass against the state at its start",
    "access": "access: each by itself, admitted and evicted for at once",
}
_SCOPE = {
    "global": "one pool over all layers",
    "layer": "a quota for each layer",
    "fitted": "a quota for each layer, fitted on the passes that train",
}
_ORDER = {
    "slots": "hits, then misses, ascending expert id",
    "fused": "hits, then misses, ascending expert id; admission after the event",
    "access": "as written in the trace",
}


def regime(union_PL: NDArray[np.integer], pools: NDArray[np.int64]) -> dict[str, float]:
    """r = |E| ÷ the layer's quota (one pool: C ÷ L) over all events: mean, 95th percentile, share above 1."""
    layers = union_PL.shape[1]
    ratio = union_PL / (pools if len(pools) == layers else pools[0] / layers)
    return {
        "r mean": float(ratio.mean()),
        "r p95": float(np.percentile(ratio, 95)),
        "r share above 1": float((ratio > 1).mean()),
    }


def oracle_gap(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of one capacity's rows without prefetch: what the gap between the best causal policy and the oracle is made of.

    admission share = (m_F − m_B) ÷ (m_c − m_B) with the miss fractions of the best causal policy c,
    belady-mandatory F and belady-bypass B; the rest is the future. Absent where there is no gap.
    """
    plain = [row for row in rows if row["prefetch"] == "none"]
    fraction = {row["policy"]: row["misses"] / row["accesses"] for row in plain}
    causal = {row["policy"]: fraction[row["policy"]] for row in plain if row["is_causal"]}
    mandatory, bypass = fraction.get("belady-mandatory"), fraction.get("belady-bypass")
    found: dict[str, Any] = {
        "miss fraction of belady-mandatory": UNKNOWN if mandatory is None else mandatory,
        "miss fraction of belady-bypass": UNKNOWN if bypass is None else bypass,
    }
    if not causal or mandatory is None or bypass is None:
        return found
    best = min(causal, key=lambda name: (causal[name], name))
    found["best causal policy without prefetch"] = best
    found["its miss fraction"] = causal[best]
    gap = causal[best] - bypass
    if gap > 0:
        admission = min(1.0, max(0.0, (mandatory - bypass) / gap))
        found["admission share of the gap"] = admission
        found["future share of the gap"] = 1 - admission
    return found


def reporting_block(
    *,
    rows: Sequence[Mapping[str, Any]],
    sizes: Sequence[CacheSize],
    look: Survey,
    num_experts: int,
    top_k: int,
    logical: int,
    options: Mapping[str, Any],
    scheduling: str,
    decisions: Mapping[str, Mapping[str, Any]],
    warm_passes: Mapping[str, int],
    output_tokens: int,
    pools: Callable[[int], NDArray[np.int64]],
    training_passes: int,
) -> dict[str, Any]:
    """The whole block, in the order in which it is shown."""
    layers = look.union_PL.shape[1]
    contract, scope = options["contract"], options["scope"]
    static = [row["policy"] for row in rows if row["policy"].startswith("static")]
    block: dict[str, Any] = {
        "contract": contract,
        "classification unit": _UNIT[contract],
        "order inside an event": _ORDER[contract],
        "scope": _SCOPE[scope],
        "N routed experts a layer": num_experts,
        "k experts a token": top_k,
        "L MoE layers": layers,
        "union per event mean": float(look.union_PL.mean()),
        "union per event p95": float(np.percentile(look.union_PL, 95)),
        "batch": options["batch"] if options["batch"] is not None else "as the trace says",
        "requests are scheduled": scheduling,
        "denominator of the miss rate": "union: distinct experts of events",
        "sharing (union ÷ logical)": look.accesses / logical,
        "passes that train": f"the first {training_passes}, not counted" if training_passes else "none",
        "static sets fitted on": _static_fit(static),
        "first load of static sets": "counted in bytes moved, and shown apart"
        if static
        else "no static set ran",
        "ties": "smaller last use, then layer, then expert id",
        "tie seed": options["tie_seed"] if options["tie_seed"] is not None else "none: the written order",
        "decision costs": dict(decisions) or "none: no times were simulated",
        "oracles": "bound the misses without prefetch only",
        "output tokens": output_tokens,
    }
    for size in sizes:
        of_size = [row for row in rows if row["capacity_label"] == size.label]
        block[f"at {size.label}"] = _at_size(
            of_size, size, look, layers, num_experts, options, warm_passes, rows, pools(size.experts)
        )
    return block


def _static_fit(static: Sequence[str]) -> str:
    if not static:
        return "no static set ran"
    parts = {"first-half": "the first half of this trace", "train": "the passes that train"}
    fits = {parts.get(spec.partition("fit=")[2], "this whole trace (not causal)") for spec in static}
    return " and ".join(sorted(fits))


def _at_size(
    of_size: Sequence[Mapping[str, Any]],
    size: CacheSize,
    look: Survey,
    layers: int,
    num_experts: int,
    options: Mapping[str, Any],
    warm_passes: Mapping[str, int],
    rows: Sequence[Mapping[str, Any]],
    pools: NDArray[np.int64],
) -> dict[str, Any]:
    quota, remainder = divmod(size.experts, layers)
    scope = options["scope"]
    found: dict[str, Any] = {
        "capacity experts": size.experts,
        "resident share": size.experts / (layers * num_experts),
        "quota a layer": "one pool" if scope == "global" else f"{int(pools.min())} to {int(pools.max())}",
        "remainder rule": f"{remainder} layers, the lowest, hold {quota + 1}" if scope == "layer" else "none needed",
        **regime(look.union_PL, pools),
        **oracle_gap(of_size),
    }
    if scope == "fitted":
        found["quotas, layer by layer"] = pools.tolist()
    if options["warm"]:
        left_out = warm_passes.get(size.label, 0)
        found["warm-up"] = (
            f"{left_out} passes left out" if left_out else "the trace never fills it: counted cold"
        )
    moved = [row for row in of_size if not row["is_bound"] and row["bytes_per_output_token"] is not None]
    if not moved:
        found["bytes moved per output token"] = UNKNOWN
        return found
    least = min(moved, key=lambda row: (row["bytes_per_output_token"], row["policy"]))
    found["bytes moved per output token"] = least["bytes_per_output_token"]
    found["… by"] = _named(least)
    found.update(_bandwidth_needed(least["bytes_per_output_token"], rows))
    return found


def _bandwidth_needed(bytes_per_token: float, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The target is the token rate of `unbounded`: what the machine does when nearly nothing has to be fetched."""
    target = next((row["tpot_s"] for row in rows if row["policy"] == "unbounded"), None)
    if not target:
        return {"bandwidth needed for the target token rate": UNKNOWN}
    return {
        "target token rate per sequence (that of unbounded), 1/s": 1 / target,
        "bandwidth needed for the target token rate, bytes/s": bytes_per_token / target,
    }


def _named(row: Mapping[str, Any]) -> str:
    return (
        str(row["policy"])
        if row["prefetch"] == "none"
        else f"{row['policy']} with prefetch {row['prefetch']}"
    )


def two_lines(block: Mapping[str, Any], sizes: Sequence[str]) -> list[str]:
    """The block folded to two lines for a terminal; all of it stands in `--json` and in the report."""
    first = (
        f"contract {block['contract']} · {block['scope']} · N={block['N routed experts a layer']} "
        f"k={block['k experts a token']} L={block['L MoE layers']} · {block['requests are scheduled']} · "
        f"union/event {block['union per event mean']:.2f} · union/logical {block['sharing (union ÷ logical)']:.3f} · "
        f"ties: {block['ties']}"
    )
    parts = []
    for label in sizes:
        at = block[f"at {label}"]
        shares = ""
        if "future share of the gap" in at:
            shares = (
                f", gap to oracle {at['admission share of the gap']:.0%} admission "
                f"{at['future share of the gap']:.0%} future"
            )
        parts.append(
            f"{label}: r {at['r mean']:.2f} (p95 {at['r p95']:.2f}, >1 in {at['r share above 1']:.0%}){shares}"
        )
    return [first, "regime " + " · ".join(parts)]
