"""What a validation runs: groups of cases over one trace and tier, for fitting, for the band, and to be judged.

A *group* is a model, a tier and a workload. Its cost table is fitted on runs of its `fit` cases, its share of the band comes
from its `band` cases, and only its `judged` cases are compared. The three run over three different traces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError, unknown_name
from ..sim.ffn import MoeFfn
from ..sim.mixers import Attention
from ..sim.model import Layer, ModelSpec
from ..traces.expert_trace import ExpertTrace

TIERS = ("file", "host", "paced")
Purpose = Literal["fit", "band", "judged"]


@dataclass(frozen=True, slots=True)
class Link:
    """The slow tier; bandwidth and latency are those of a paced link only."""

    tier: str
    bytes_per_s: float = 4e9
    latency_s: float = 20e-6

    def __post_init__(self) -> None:
        if self.tier not in TIERS:
            raise unknown_name("tier", self.tier, TIERS)

    @property
    def label(self) -> str:
        return f"paced {self.bytes_per_s / 1e9:g} GB/s" if self.tier == "paced" else self.tier


@dataclass(frozen=True, slots=True)
class Case:
    """One run: a policy, a prefetcher and a capacity in whole experts."""

    policy: str
    prefetch: str
    experts: int
    purpose: Purpose = "judged"


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Cases that share a model, a link and a workload."""

    name: str
    model: ModelSpec
    link: Link
    batch: int | None
    traces: dict[str, ExpertTrace]
    """One for each purpose."""
    cases: tuple[Case, ...]
    dtype: str = "fp32"
    files: dict[str, str] = field(default_factory=dict)
    """Name and SHA-256 of the judged trace's file, where it came from one."""

    def among(self, purpose: Purpose) -> list[Case]:
        return [case for case in self.cases if case.purpose == purpose]


FIT_POLICIES = (("lru", "none"), ("lru", "noisy:recall=0.6"))
BAND_POLICIES = (
    ("fifo", "none"), ("lfu", "noisy"), ("sieve", "none"), ("clock", "perfect"), ("fifo", "noisy:recall=0.5"),
    ("lfu", "none"),
)  # fmt: skip


def calibration_cases(num_layers: int, num_experts: int, top_k: int, band: int) -> tuple[Case, ...]:
    """Runs to fit on (all resident, half, few) and `band` runs to take the band from, for a model of that shape."""
    everything = num_layers * num_experts
    few = max(top_k + 1, everything // 8)
    fit = [Case("lru", "none", everything, "fit"), Case("lru", "none", few, "fit")]
    fit.append(Case("lru", "noisy:recall=0.6", max(few, everything // 3), "fit"))
    sizes = (everything // 2, everything // 4, few, everything // 3)
    drawn = [
        Case(*BAND_POLICIES[i % len(BAND_POLICIES)], max(top_k + 1, sizes[i % len(sizes)]), "band")
        for i in range(band)
    ]
    return (*fit, *drawn)


def cut_trace(trace: ExpertTrace, tokens: int) -> ExpertTrace:
    """The first `tokens` rows, so that a real run stays short; a sequence may be cut short."""
    if trace.num_tokens <= tokens:
        return trace

    def first(rows: NDArray[Any] | None) -> NDArray[Any] | None:
        return None if rows is None else rows[:tokens]

    return replace(
        trace,
        experts_TLK=np.asarray(trace.experts_TLK[:tokens]),
        sequence_start_S=trace.sequence_start_S[trace.sequence_start_S < tokens],
        is_prefill_T=first(trace.is_prefill_T), weights_TLK=first(trace.weights_TLK),
        predicted_TLHM=first(trace.predicted_TLHM), predicted_scores_TLHM=first(trace.predicted_scores_TLHM),
        token_ids_T=first(trace.token_ids_T), step_id_T=first(trace.step_id_T),
        notes=(*trace.notes, f"cut to its first {tokens} rows"),
    )  # fmt: skip


def twin_trace(trace: ExpertTrace, rng: np.random.Generator) -> ExpertTrace:
    """A trace of the same passes and statistics and another routing: rows rotated among their kind, experts renamed.

    Calibration runs over twins, so that no cost is fitted on the accesses that are then judged.
    """
    prefill = trace.is_prefill_T if trace.is_prefill_T is not None else np.zeros(trace.num_tokens, bool)
    rows = np.arange(trace.num_tokens)
    for kind in (True, False):
        mine = np.flatnonzero(prefill == kind)
        if len(mine):
            rows[mine] = np.roll(mine, int(rng.integers(1, max(2, len(mine)))))
    names = np.stack([np.r_[rng.permutation(trace.num_experts), -1] for _ in range(trace.num_layers)])
    layer = np.arange(trace.num_layers)
    experts = names[layer[None, :, None], np.asarray(trace.experts_TLK, np.int64)[rows]]
    guesses = trace.predicted_TLHM
    if guesses is not None:
        target = np.minimum(layer[:, None] + 1 + np.arange(guesses.shape[2]), trace.num_layers - 1)
        guesses = names[target[None, :, :, None], np.asarray(guesses, np.int64)[rows]].astype(np.int32)
    scores = trace.predicted_scores_TLHM
    return replace(
        trace, experts_TLK=experts.astype(np.int32), predicted_TLHM=guesses, weights_TLK=None,
        predicted_scores_TLHM=None if scores is None else np.asarray(scores)[rows],
        synthetic=True, notes=(*trace.notes, "a twin: rows rotated, experts renamed"),
    )  # fmt: skip


# -- the built-in suite ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Shape:
    hidden: int
    width: int
    num_experts: int
    top_k: int
    layers: int

    def model(self, name: str) -> ModelSpec:
        moe = MoeFfn(self.hidden, self.num_experts, self.top_k, self.width)
        attention = Attention(self.hidden, self.hidden // 64, max(1, self.hidden // 128), 64, 64)
        layer = Layer(attention, moe, 2 * self.hidden)
        return ModelSpec(
            name, "built in", "suite", self.hidden, 2048, (layer,) * self.layers, self.hidden, False
        )


_SHAPES = {"wide": _Shape(512, 512, 16, 2, 6), "many": _Shape(384, 256, 32, 4, 6)}
_GROUPS = (  # tier, shape, batch, bytes per second of a paced link
    ("file", "wide", 1, 0.0), ("file", "many", 1, 0.0), ("file", "wide", 4, 0.0),
    ("host", "wide", 1, 0.0), ("host", "many", 1, 0.0), ("host", "wide", 4, 0.0),
    ("paced", "wide", 1, 4e9), ("paced", "many", 1, 1e9), ("paced", "wide", 4, 2e9),
)  # fmt: skip
_JUDGED = (  # policy, prefetcher, share of all experts; 8 % makes waves of the prompt's passes
    (("lru", "none", 0.25), ("least-stale", "gate", 0.5), ("lfu", "none", 0.08)),
    (("least-stale", "none", 0.3), ("lru", "perfect", 0.4), ("sieve", "none", 0.12)),
    (("fifo", "none", 0.5), ("lru", "gate", 0.3), ("clock", "previous", 0.2)),
)


def suite_groups(
    *, tiers: Sequence[str] = TIERS, groups: int | None = None, tokens: int = 28, seed: int = 0
) -> tuple[Group, ...]:
    """The built-in matrix: three groups a tier, three judged cases a group. `groups` keeps the first of each tier only."""
    for tier in tiers:
        if tier not in TIERS:
            raise unknown_name("tier", tier, TIERS)
    if tokens < 8:
        raise UsageError(f"the suite decodes at least 8 tokens a sequence, got {tokens}")
    found, of_tier = [], dict.fromkeys(TIERS, 0)
    for number, (tier, shape_name, batch, bytes_per_s) in enumerate(_GROUPS):
        of_tier[tier] += 1
        if tier not in tiers or (groups is not None and of_tier[tier] > groups):
            continue
        shape, sequences = _SHAPES[shape_name], max(1, batch)
        traces = {
            purpose: _workload(shape, sequences, tokens, np.random.default_rng((seed, number, index)))
            for index, purpose in enumerate(("fit", "band", "judged"))
        }
        everything = shape.layers * shape.num_experts
        judged = tuple(
            Case(policy, prefetch, max(shape.top_k + 1, int(share * everything)))
            for policy, prefetch, share in _JUDGED[(number + number // 3) % 3]
        )
        link = Link(tier, bytes_per_s) if tier == "paced" else Link(tier)
        found.append(
            Group(
                f"{link.label}, {shape_name}, batch {batch}",
                shape.model(shape_name),
                link,
                batch,
                traces,
                (*calibration_cases(shape.layers, shape.num_experts, shape.top_k, 3), *judged),
            )
        )
    return tuple(found)


def _workload(shape: _Shape, sequences: int, tokens: int, rng: np.random.Generator) -> ExpertTrace:
    from ..traces import synthesise

    prompt = 12
    return synthesise(
        num_tokens=sequences * (prompt + tokens), num_layers=shape.layers, num_experts=shape.num_experts,
        top_k=shape.top_k, num_sequences=sequences, prefill_tokens=prompt, reuse=0.5, guess_recall=0.8, rng=rng,
        model="suite",
    )  # fmt: skip
