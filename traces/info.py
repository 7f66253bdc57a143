"""`trace_info`: what a trace is and looks like, for people (`lines`) and for programs (`to_dict`)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .expert_trace import PADDING, ExpertTrace
from .hygiene import HygieneInfo, hygiene_info
from .info_text import info_lines
from .marginal import CANNOT, MarginalTrace
from .statistics import (
    GuessInfo,
    LoadInfo,
    ReuseInfo,
    consecutive,
    constant_layers,
    counts_of,
    cross_layer,
    guess_info,
    layer_ids_of,
    load_info,
    repeated_tokens,
    reuse_info,
    working_set,
)

FEW_TOKENS = 256
MANY_REPEATED = 0.01
MANY_EQUAL_TOKENS = 0.3
MANY_SHARED_PREFIXES = 0.1


@dataclass(frozen=True, slots=True)
class LayerInfo:
    """One MoE layer: `layer` is the model's own number of it."""

    layer: int
    load: LoadInfo
    reuse: ReuseInfo | None
    working_set: dict[int, float]


@dataclass(frozen=True, slots=True)
class TraceInfo:
    """Everything `workbench trace info` says. None or empty: the trace does not say (never 0)."""

    kind: str
    """`routing`, or `counts` for a marginal trace."""
    model: str
    source: str
    licence: str
    synthetic: bool | None
    tokens: int | None
    prefill_tokens: int | None
    decode_tokens: int | None
    sequences: int | None
    sequence_tokens_min: int | None
    sequence_tokens_mean: float | None
    sequence_tokens_max: int | None
    steps: int | None
    """Passes, where the trace records which tokens passed together."""
    num_layers: int
    layer_ids: tuple[int, ...]
    num_experts: int
    top_k: int | None
    logical: int
    """Expert assignments: tokens × layers × top-k less padding, before any sharing."""
    padded_slots: int
    has: tuple[str, ...]
    reuse: float | None
    """Share of a token's experts that the token before it used too, over all layers."""
    reuse_decode: float | None
    """The same among decoded tokens only."""
    reuse_chance: float | None
    """K / N: what two unrelated tokens share where all loads are equal."""
    reuse_by_loads: float | None
    """What two unrelated tokens share with the loads of this trace."""
    load_max_over_mean: float
    load_max_over_mean_worst: float
    load_cv: float
    zipf_exponent: float | None
    entropy_bits: float
    entropy_share: float
    unused_experts: int
    """Layer-experts that no token used, of num_layers × num_experts."""
    working_set: dict[int, float]
    """Window in tokens → mean distinct experts per layer in it."""
    cross_layer: float | None
    guesses: tuple[GuessInfo, ...]
    hygiene: HygieneInfo | None
    per_layer: tuple[LayerInfo, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON: plain numbers, texts, lists; windows and prefix lengths become text keys."""
        found = _plain(asdict(self))
        assert isinstance(found, dict)
        return found

    def lines(self) -> list[str]:
        """For people, a line a fact; notes and warnings last."""
        return info_lines(self)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def trace_info(trace: ExpertTrace | MarginalTrace) -> TraceInfo:
    """Statistics of a trace, or of counts (load, skew and entropy only). Reads a trace one layer at a time."""
    return _of_counts(trace) if isinstance(trace, MarginalTrace) else _of_trace(trace)


def _of_trace(trace: ExpertTrace) -> TraceInfo:
    follows, decoding = consecutive(trace)
    layers, decode_reuse, counts = list[LayerInfo](), list[ReuseInfo](), []
    for index, layer in enumerate(trace.layer_ids_L):
        ids = layer_ids_of(trace, index)
        uses = counts_of(ids, trace.num_experts)
        counts.append(uses)
        layers.append(
            LayerInfo(
                layer=int(layer),
                load=load_info(uses),
                reuse=reuse_info(ids, follows, uses),
                working_set=working_set(ids, trace.sequence_start_S, trace.num_experts),
            )
        )
        if trace.is_prefill_T is not None:
            decode_reuse.append(reuse_info(ids, decoding, uses))
    counts_LN = np.stack(counts)
    logical = int(counts_LN.sum())
    lengths = np.diff(np.r_[trace.sequence_start_S, trace.num_tokens])
    prefill = None if trace.is_prefill_T is None else int(np.asarray(trace.is_prefill_T).sum())
    optional = {
        "phases": trace.is_prefill_T,
        "weights": trace.weights_TLK,
        "guesses": trace.predicted_TLHM,
        "guess scores": trace.predicted_scores_TLHM,
        "token ids": trace.token_ids_T,
        "step ids": trace.step_id_T,
    }
    reuses = [layer.reuse for layer in layers if layer.reuse is not None]
    hygiene = hygiene_info(trace)
    return TraceInfo(
        kind="routing",
        model=trace.model,
        source=trace.source,
        licence=trace.licence,
        synthetic=trace.synthetic,
        tokens=trace.num_tokens,
        prefill_tokens=prefill,
        decode_tokens=None if prefill is None else trace.num_tokens - prefill,
        sequences=trace.num_sequences,
        sequence_tokens_min=int(lengths.min()),
        sequence_tokens_mean=float(lengths.mean()),
        sequence_tokens_max=int(lengths.max()),
        steps=None if trace.step_id_T is None else int(np.unique(trace.step_id_T).size),
        num_layers=trace.num_layers,
        layer_ids=tuple(int(layer) for layer in trace.layer_ids_L),
        num_experts=trace.num_experts,
        top_k=trace.top_k,
        logical=logical,
        padded_slots=trace.experts_TLK.size - logical,
        has=tuple(name for name, array in optional.items() if array is not None),
        reuse=_mean([reuse.measured for reuse in reuses]),
        reuse_decode=_mean([reuse.measured for reuse in decode_reuse]),
        reuse_chance=trace.top_k / trace.num_experts,
        reuse_by_loads=_mean([reuse.by_loads for reuse in reuses]),
        **_loads([layer.load for layer in layers]),
        working_set={
            width: float(np.mean([layer.working_set[width] for layer in layers]))
            for width in layers[0].working_set
        },
        cross_layer=cross_layer(trace),
        guesses=tuple(guess_info(trace, counts_LN)),
        hygiene=hygiene,
        per_layer=tuple(layers),
        notes=trace.notes,
        warnings=tuple(_warnings(trace, counts_LN, hygiene)),
    )


def _of_counts(trace: MarginalTrace) -> TraceInfo:
    counts_LN = trace.counts_PLN.sum(axis=0)
    layers = tuple(
        LayerInfo(layer=int(layer), load=load_info(uses), reuse=None, working_set={})
        for layer, uses in zip(trace.layer_ids_L, counts_LN, strict=True)
        if uses.sum()
    )
    nothing: dict[str, Any] = dict.fromkeys(
        (
            "synthetic", "tokens", "prefill_tokens", "decode_tokens", "sequences", "sequence_tokens_min",
            "sequence_tokens_mean", "sequence_tokens_max", "top_k", "reuse", "reuse_decode", "reuse_chance",
            "reuse_by_loads", "cross_layer", "hygiene",
        )
    )  # fmt: skip
    return TraceInfo(
        kind="counts",
        model=trace.model,
        source=trace.source,
        licence=trace.licence,
        steps=int(trace.counts_PLN.shape[0]),
        num_layers=trace.num_layers,
        layer_ids=tuple(int(layer) for layer in trace.layer_ids_L),
        num_experts=trace.num_experts,
        logical=trace.logical,
        padded_slots=0,
        has=(),
        **_loads([layer.load for layer in layers]),
        working_set={},
        guesses=(),
        per_layer=layers,
        notes=trace.notes,
        warnings=(CANNOT,),
        **nothing,
    )


def _loads(loads: list[LoadInfo]) -> dict[str, Any]:
    """The layers' loads in a few numbers: means over the layers that have experts (case B06), and the worst."""
    return {
        "load_max_over_mean": float(np.mean([load.max_over_mean for load in loads])),
        "load_max_over_mean_worst": max(load.max_over_mean for load in loads),
        "load_cv": float(np.mean([load.cv for load in loads])),
        "zipf_exponent": _mean([load.zipf_exponent for load in loads]),
        "entropy_bits": float(np.mean([load.entropy_bits for load in loads])),
        "entropy_share": float(np.mean([load.entropy_share for load in loads])),
        "unused_experts": sum(load.unused for load in loads),
    }


def _mean(values: list[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if there else None


def _warnings(trace: ExpertTrace, counts_LN: Any, hygiene: HygieneInfo | None) -> list[str]:
    found = list[str]()
    if trace.synthetic:
        found.append("synthetic: these statistics were asked for, not measured")
    if trace.num_tokens < FEW_TOKENS:
        found.append(f"only {trace.num_tokens} tokens: every share here is rough")
    if trace.is_prefill_T is None:
        found.append("does not say which tokens were prompt; all count as decoded")
    padded = (
        (np.asarray(trace.experts_TLK) == PADDING).any(axis=2) if trace.experts_TLK.size < 1 << 24 else None
    )
    short = _short_rows(trace) if padded is None else int(padded.sum())
    if short:
        found.append(
            f"{short} of {trace.num_tokens * trace.num_layers} token-layer rows have fewer than {trace.top_k} experts "
            "(padding -1 is no access)"
        )
    repeated = repeated_tokens(trace)
    if repeated > MANY_REPEATED * trace.num_tokens:
        found.append(
            f"{repeated} of {trace.num_tokens} tokens use exactly the experts of the token before them in every layer: "
            "dummy or padding rows?"
        )
    constant = constant_layers(trace, counts_LN)
    if constant:
        found.append(f"layers {', '.join(map(str, constant))}: every token has the same experts")
    if hygiene is not None:
        found += _hygiene_warnings(hygiene)
    return found


def _short_rows(trace: ExpertTrace) -> int:
    return sum(
        int((np.asarray(trace.experts_TLK[:, layer]) == PADDING).any(axis=1).sum())
        for layer in range(trace.num_layers)
    )


def _hygiene_warnings(hygiene: HygieneInfo) -> list[str]:
    found = list[str]()
    same = hygiene.sequences - hygiene.distinct_sequences
    if same:
        found.append(f"{same} of {hygiene.sequences} sequences repeat another one token for token")
    for length, share in hygiene.identical_prefix.items():
        if length >= 32 and share > MANY_SHARED_PREFIXES:
            found.append(
                f"{share:.0%} of the sequences share their first {length} tokens with another one: their routing looks "
                "more shareable than different requests' would"
            )
            break
    after = [bucket.share for bucket in hygiene.agreement_decode if bucket.first >= 1]
    if after and max(after) > max(0.1, 3 * hygiene.agreement_chance):
        found.append(
            f"up to {max(after):.0%} of pairs of sequences continue with the same token at the same position "
            f"({hygiene.agreement_chance:.1%} by chance): prompts from one template?"
        )
    if hygiene.commonest_share > MANY_EQUAL_TOKENS:
        found.append(
            f"token id {hygiene.commonest_token} is {hygiene.commonest_share:.0%} of all tokens: padding or dummies?"
        )
    return found
