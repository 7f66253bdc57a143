"""`trace info` as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .readers.rows import ranges

if TYPE_CHECKING:
    from .hygiene import Agreement, HygieneInfo
    from .info import TraceInfo

WIDTH = 22


def info_lines(info: TraceInfo) -> list[str]:
    """One fact a line: `name   value`; what the trace does not say is left out or called unknown."""
    kind = "synthetic" if info.synthetic else "counts only" if info.kind == "counts" else "logged"
    found = [
        _line("model", f"{info.model} ({kind})"),
        _line("source", info.source),
        _line("licence", info.licence),
        *_shape(info),
        *_reuse(info),
        _line(
            "load skew",
            f"most used expert {info.load_max_over_mean:.2f} × the mean (worst layer "
            f"{info.load_max_over_mean_worst:.2f}), variation {info.load_cv:.2f}"
            + ("" if info.zipf_exponent is None else f", falls as rank^-{info.zipf_exponent:.2f}"),
        ),
        _line("entropy", f"{info.entropy_bits:.2f} bits, {info.entropy_share:.1%} of the most possible"),
        _line("never used", f"{info.unused_experts} of {info.num_layers * info.num_experts} layer-experts"),
    ]
    if info.working_set:
        sizes = ", ".join(
            f"{distinct:.1f} in {width} tokens" for width, distinct in sorted(info.working_set.items())
        )
        found.append(_line("working set", f"distinct experts per layer of {info.num_experts}: {sizes}"))
    if info.cross_layer is not None:
        found.append(
            _line(
                "cross-layer", f"{info.cross_layer:.1%} above chance: one layer's experts tell the next one's"
            )
        )
    for guess in info.guesses:
        found.append(
            _line(
                f"guess {guess.ahead} ahead",
                f"recall {guess.recall_first_k:.1%} with the first {info.top_k} guesses, {guess.recall_all:.1%} with "
                f"all {guess.guesses} (the most used experts: {guess.chance_first_k:.1%})",
            )
        )
    if info.hygiene is not None:
        found += _hygiene(info.hygiene)
    found += [_line("note", note) for note in info.notes]
    found += [_line("warning", warning) for warning in info.warnings]
    return found


def _line(name: str, value: str) -> str:
    return f"{name:<{WIDTH}}{value}"


def _shape(info: TraceInfo) -> list[str]:
    layers = f"{info.num_layers} MoE layers ({ranges(info.layer_ids)})"
    if info.kind == "counts":
        return [
            _line("shape", f"{info.steps} steps × {layers} × {info.num_experts} experts, {info.logical} uses")
        ]
    phases = (
        "phases unknown"
        if info.prefill_tokens is None
        else f"{info.prefill_tokens} prefill, {info.decode_tokens} decode"
    )
    found = [
        _line("shape", f"{info.tokens} tokens × {layers} × top-{info.top_k} of {info.num_experts} experts"),
        _line("tokens", f"{info.tokens} ({phases}), {info.logical} expert accesses"),
        _line(
            "sequences",
            f"{info.sequences}, of {info.sequence_tokens_min} to {info.sequence_tokens_max} tokens "
            f"(mean {info.sequence_tokens_mean:.1f})",
        ),
    ]
    if info.steps is not None:
        found.append(_line("passes", f"{info.steps}, as recorded"))
    found.append(_line("also holds", ", ".join(info.has) or "nothing but the experts"))
    return found


def _reuse(info: TraceInfo) -> list[str]:
    if info.reuse is None or info.reuse_chance is None:
        return []
    decode = "" if info.reuse_decode is None else f" ({info.reuse_decode:.1%} in decode)"
    loads = "" if info.reuse_by_loads is None else f", {info.reuse_by_loads:.1%} by its loads alone"
    return [
        _line(
            "reuse",
            f"consecutive tokens share {info.reuse:.1%} of their experts{decode}; "
            f"{info.reuse_chance:.1%} by chance{loads}",
        )
    ]


def _hygiene(hygiene: HygieneInfo) -> list[str]:
    found = [_line("distinct sequences", f"{hygiene.distinct_sequences} of {hygiene.sequences}")]
    if hygiene.identical_prefix:
        shares = ", ".join(
            f"{share:.1%} of {length} tokens" for length, share in hygiene.identical_prefix.items()
        )
        found.append(_line("identical prefixes", shares))
    for name, buckets in (
        ("agreement by position", hygiene.agreement),
        ("… after the prompt", hygiene.agreement_decode),
    ):
        if buckets:
            found.append(_line(name, f"{_buckets(buckets)} ({hygiene.agreement_chance:.1%} by chance)"))
    return found


def _buckets(buckets: tuple[Agreement, ...]) -> str:
    return ", ".join(
        f"{b.first}: {b.share:.1%}" if b.first == b.last else f"{b.first}-{b.last}: {b.share:.1%}"
        for b in buckets
    )
