"""What the `trace` commands do: a trace file in, a description or another trace file out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import UsageError, unknown_name
from ..traces import permute_steps, read_any, read_trace, save_trace, synthesise, trace_info

if TYPE_CHECKING:
    from ..traces import ExpertTrace, TraceInfo

PERMUTATIONS = ("steps",)


def loaded_trace(trace: ExpertTrace | str | Path, format: str | None = None) -> tuple[ExpertTrace, Path | None]:
    """A trace with its ids checked, from memory or from a file, and the file's path."""
    from ..traces.expert_trace import ExpertTrace

    if isinstance(trace, ExpertTrace):
        trace.check_ids()
        return trace, None
    return read_trace(Path(trace), format=format), Path(trace)


def describe_trace(
    path: str | Path, *, format: str | None = None, num_experts: int | None = None, lenient: bool = False
) -> TraceInfo:
    """The statistics of a trace file of any known format (a file of counts only is described too)."""
    return trace_info(read_any(path, format=format, num_experts=num_experts, lenient=lenient))


def convert_trace(
    source: str | Path,
    target: str | Path,
    *,
    format: str | None = None,
    num_experts: int | None = None,
    lenient: bool = False,
    permute: str | None = None,
    seed: int = 0,
) -> ExpertTrace:
    """Read any known format, write our own; returns the trace that was written.

    `permute="steps"` puts the steps into a random order drawn from `seed`: the control for findings about time.
    """
    if permute is not None and permute not in PERMUTATIONS:
        raise unknown_name("permutation", permute, PERMUTATIONS)
    trace = read_trace(source, format=format, num_experts=num_experts, lenient=lenient)
    if permute is not None:
        trace = permute_steps(trace, np.random.default_rng(seed))
    save_trace(trace, target)
    return trace


def synthesise_trace(
    target: str | Path,
    *,
    model: str | None = None,
    num_layers: int | None = None,
    num_experts: int | None = None,
    top_k: int | None = None,
    num_tokens: int = 1000,
    num_sequences: int = 1,
    prefill_tokens: int = 0,
    reuse: float | None = None,
    skew: float = 0.0,
    cross_layer: float = 0.0,
    guess_recall: float | None = None,
    lookahead: int = 1,
    guesses: int | None = None,
    seed: int = 0,
) -> ExpertTrace:
    """Write a synthetic trace with the shape of a known model, or with the shape given, and return it.

    A shape that is given beside a model replaces the model's own. Raises `UsageError` where neither says it.
    """
    layer_ids: Sequence[int] | None = None
    name = "synthetic"
    if model is not None:
        from ..sim.catalog import load_model

        spec = load_model(model)
        if not spec.moe_layer_ids:
            raise UsageError(f"model {model}: has no mixture-of-experts layers, so no experts to trace")
        name = f"synthetic, shape of {spec.name}"
        if num_layers is None:
            layer_ids = spec.moe_layer_ids
        num_layers = num_layers or len(spec.moe_layer_ids)
        num_experts = num_experts or spec.num_experts
        top_k = top_k or spec.top_k
    if num_layers is None or num_experts is None or top_k is None:
        raise UsageError("a synthetic trace needs a model, or the numbers of layers, of experts and of top-k")
    trace = synthesise(
        num_tokens=num_tokens,
        num_layers=num_layers,
        num_experts=num_experts,
        top_k=top_k,
        reuse=reuse,
        skew=skew,
        cross_layer=cross_layer,
        guess_recall=guess_recall,
        lookahead=lookahead,
        guesses=guesses,
        num_sequences=num_sequences,
        prefill_tokens=prefill_tokens,
        rng=np.random.default_rng(seed),
        model=name,
        layer_ids=layer_ids,
    )
    save_trace(trace, target)
    return trace


def capture_trace(
    model: str,
    texts: Sequence[str | Path],
    target: str | Path,
    *,
    num_sequences: int = 8,
    prompt_tokens: int = 64,
    decode_tokens: int = 64,
    lookahead: int = 3,
    guesses: int = 8,
    device: str = "cpu",
    seed: int = 0,
) -> ExpertTrace:
    """Run a Hugging Face MoE model on text files, write which experts it used, and return that trace."""
    from ..traces.capture import capture

    trace = capture(
        model,
        [Path(text) for text in texts],
        num_sequences=num_sequences,
        prompt_tokens=prompt_tokens,
        decode_tokens=decode_tokens,
        lookahead=lookahead,
        guesses=guesses,
        device=device,
        seed=seed,
    )
    save_trace(trace, target)
    return trace
