"""What a validation ran on, with where each input came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .validate_cases import Group


def inputs_of(groups: Sequence[Group], seed: int) -> dict[str, Any]:
    """Of each group: trace, model, where the experts lived, and the options that shape the runs."""
    return {group.name: _of_group(group, seed) for group in groups}


def _of_group(group: Group, seed: int) -> dict[str, Any]:
    trace, model, link = group.traces["judged"], group.model, group.link
    place: dict[str, Any] = {"tier": link.tier}
    if link.tier == "paced":
        place |= {"link_bytes_per_s": link.bytes_per_s, "link_latency_s": link.latency_s}
    return {
        "trace": {
            **group.files, "model": trace.model, "source": trace.source, "licence": trace.licence,
            "synthetic": trace.synthetic, "rows_run": trace.num_tokens, "sequences": len(trace.sequence_start_S),
            "notes": list(trace.notes),
        },
        "model": {
            "name": model.name, "source": model.source, "moe_layers": trace.num_layers, "experts_a_layer": trace.num_experts,
            "top_k": trace.top_k, "weights": "random: they decide no time and no routing",
        },
        "experts": place,
        "options": {"compute_format": group.dtype, "batch": group.batch or "as the trace says", "seed": seed},
        "runs": {purpose: len(group.among(purpose)) for purpose in ("fit", "band", "judged")},
    }  # fmt: skip
