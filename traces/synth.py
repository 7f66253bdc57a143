"""Synthetic traces: the shape of any model, with the statistics that were asked for, marked synthetic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .expert_trace import PADDING, ExpertTrace
from .ids import id_dtype
from .router import Router, best, make_router

BLOCK_VALUES = 1 << 21


def synthesise(
    *,
    num_tokens: int,
    num_layers: int,
    num_experts: int,
    top_k: int,
    rng: np.random.Generator,
    reuse: float | None = None,
    skew: float = 0.0,
    cross_layer: float = 0.0,
    guess_recall: float | None = None,
    lookahead: int = 1,
    guesses: int | None = None,
    num_sequences: int = 1,
    prefill_tokens: int = 0,
    model: str = "synthetic",
    layer_ids: Sequence[int] | None = None,
) -> ExpertTrace:
    """A trace whose statistics, as `trace_info` measures them, are the ones asked for, up to the noise of sampling.

    `num_tokens` rows in all are divided over `num_sequences`, the longer ones first; the first `prefill_tokens` of
    each are its prompt. `reuse`: share of a token's experts that the token before it used too (None: chance).
    `skew`: loads fall as rank^−skew. `cross_layer`: how far above chance one layer's experts tell the next one's,
    0 to 1. `guess_recall`: share of the experts used that stand among the first K guesses, for each of `lookahead`
    layers ahead (None: no guesses); `guesses` a layer, at least K. Raises `UsageError` naming what cannot be.
    """
    guesses = top_k if guesses is None else guesses
    _check(num_tokens, num_layers, num_experts, top_k, num_sequences, prefill_tokens)
    if guess_recall is not None:
        if num_layers < 2 or not 1 <= lookahead < num_layers:
            raise UsageError(
                f"lookahead must be from 1 to num_layers - 1 = {num_layers - 1} for guesses, got {lookahead}"
            )
        if not top_k <= guesses <= num_experts:
            raise UsageError(
                f"guesses must be from top_k={top_k} to num_experts={num_experts}, got {guesses}"
            )
    for name, value, low, high in (
        ("skew", skew, 0.0, 8.0),
        ("cross_layer", cross_layer, 0.0, 1.0),
        ("reuse", 0.0 if reuse is None else reuse, 0.0, 1.0),
        ("guess_recall", 0.0 if guess_recall is None else guess_recall, 0.0, 1.0),
    ):
        if not low <= value <= high:  # also refuses NaN
            raise UsageError(f"{name} must be from {low:g} to {high:g}, got {value}")
    router = make_router(num_experts, top_k, skew, rng)
    over_time = 0.0 if reuse is None else router.correlation_for("reuse", reuse)
    over_layers = router.correlation_for("cross_layer", router.chance + cross_layer * (1 - router.chance))
    ahead = None if guess_recall is None else router.correlation_for("guess_recall", guess_recall)

    lengths = np.full(num_sequences, num_tokens // num_sequences)
    lengths[: num_tokens % num_sequences] += 1
    starts = np.r_[0, np.cumsum(lengths)[:-1]].astype(np.int64)
    is_prefill = np.arange(num_tokens) - np.repeat(starts, lengths) < prefill_tokens
    expert_of_rank = np.array([rng.permutation(num_experts) for _ in range(num_layers)])

    dtype = id_dtype(num_experts)
    experts = np.empty((num_tokens, num_layers, top_k), dtype)
    weights = np.empty(experts.shape, np.float32)
    shape = (num_tokens, num_layers, lookahead, guesses)
    predicted = None if ahead is None else np.full(shape, PADDING, dtype)
    predicted_scores = None if ahead is None else np.zeros(shape, np.float32)
    for rows, normal in _normals(num_layers, num_experts, num_tokens, starts, over_time, over_layers, rng):
        scores = normal + router.bias_N
        ranks = best(scores, top_k)
        experts[rows] = np.take_along_axis(expert_of_rank[None], ranks, axis=2)
        weights[rows] = _softmax(np.take_along_axis(scores, ranks, axis=2))
        if ahead is not None and predicted is not None and predicted_scores is not None:
            for h in range(lookahead):
                noisy = _guess(router, ahead, normal[:, h + 1 :], rng)
                ranks = best(noisy, guesses)
                here = np.s_[rows, : num_layers - h - 1, h]
                predicted[here] = np.take_along_axis(expert_of_rank[None, h + 1 :], ranks, axis=2)
                predicted_scores[here] = np.take_along_axis(_softmax(noisy), ranks, axis=2)
    asked = (
        f"reuse {'chance' if reuse is None else reuse}, skew {skew:g}, cross-layer {cross_layer:g}, "
        f"guess recall {'no guesses' if guess_recall is None else guess_recall}"
    )
    return ExpertTrace(
        experts_TLK=experts,
        layer_ids_L=np.arange(num_layers, dtype=np.int32)
        if layer_ids is None
        else np.array(layer_ids, np.int32),
        num_experts=num_experts,
        sequence_start_S=starts,
        model=model,
        source=f"synthesised; asked for {asked}",
        licence="none needed: generated numbers",
        synthetic=True,
        is_prefill_T=is_prefill,
        weights_TLK=weights,
        predicted_TLHM=predicted,
        predicted_scores_TLHM=predicted_scores,
        notes=_capped(router),
    )


def _check(
    num_tokens: int, num_layers: int, num_experts: int, top_k: int, num_sequences: int, prefill_tokens: int
) -> None:
    for name, value in (
        ("num_tokens", num_tokens),
        ("num_layers", num_layers),
        ("num_experts", num_experts),
        ("top_k", top_k),
        ("num_sequences", num_sequences),
    ):
        if value < 1:
            raise UsageError(f"{name} must be at least 1, got {value}")
    if top_k > num_experts:
        raise UsageError(f"top_k must be at most num_experts={num_experts}, got {top_k}")
    if num_sequences > num_tokens:
        raise UsageError(f"num_sequences must be at most num_tokens={num_tokens}, got {num_sequences}")
    if not 0 <= prefill_tokens <= num_tokens // num_sequences:
        raise UsageError(
            f"prefill_tokens must be from 0 to the shortest sequence's {num_tokens // num_sequences} tokens, "
            f"got {prefill_tokens}"
        )


def _normals(
    num_layers: int,
    num_experts: int,
    num_tokens: int,
    starts: NDArray[np.int64],
    over_time: float,
    over_layers: float,
    rng: np.random.Generator,
) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Blocks of standard normals [rows, L, N], correlated from token to token and from layer to layer.

    A sequence begins afresh. Both correlations are exact and do not disturb each other: each layer's own noise is
    the same first-order process in time, and layers are mixtures of them.
    """
    block = max(1, BLOCK_VALUES // (num_layers * num_experts))
    fresh_time = np.float32(math.sqrt(max(0.0, 1 - over_time**2)))
    fresh_layer = np.float32(math.sqrt(max(0.0, 1 - over_layers**2)))
    begins = np.zeros(num_tokens, bool)
    begins[starts] = True
    last = np.zeros((num_layers, num_experts), np.float32)
    for first in range(0, num_tokens, block):
        rows = slice(first, min(first + block, num_tokens))
        own = rng.standard_normal((rows.stop - first, num_layers, num_experts), dtype=np.float32)
        if over_time > 0:
            for at in range(own.shape[0]):
                if not begins[first + at]:
                    own[at] *= fresh_time
                    own[at] += np.float32(over_time) * last
                last = own[at].copy()
        if over_layers > 0:
            for layer in range(1, num_layers):
                own[:, layer] *= fresh_layer
                own[:, layer] += np.float32(over_layers) * own[:, layer - 1]
        yield rows, own


def _guess(
    router: Router, ahead: float, normal: NDArray[np.float32], rng: np.random.Generator
) -> NDArray[np.float32]:
    """Scores as a gate sees them ahead of time: the true ones with noise, of the same size on the whole."""
    noise = rng.standard_normal(normal.shape, dtype=np.float32)
    scores = np.float32(ahead) * normal + np.float32(math.sqrt(max(0.0, 1 - ahead**2))) * noise
    return np.asarray(scores + router.bias_N, np.float32)


def _softmax(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True), np.float32)


def _capped(router: Router) -> tuple[str, ...]:
    """A note where the skew asked for would have had experts used more than once a token."""
    highest = int((router.load_N >= router.load_N[0]).sum())
    if router.load_N[0] < 0.979 or highest == router.load_N.size:
        return ()
    return (
        f"the {highest} most used experts of each layer are at the highest load, {router.load_N[0]:.2f} of tokens",
    )
