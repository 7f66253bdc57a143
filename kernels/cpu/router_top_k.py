"""Softmax over all experts and the k largest, and the order that puts tokens of one expert side by side."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import UsageError
from .compiled import parallel, serial

Array = Any


def router_top_k(logits_TN: Tensor, *, top_k: int, renormalise: bool = True) -> tuple[Tensor, Tensor]:
    """Weights (fp32) and ids (int64) of each token's experts, [T, K] each, the strongest first, ties to the lower id.

    Raises `UsageError` where `top_k` is not between 1 and the number of experts.
    """
    tokens, num_experts = logits_TN.shape
    if not 1 <= top_k <= num_experts:
        raise UsageError(f"top_k must be between 1 and the {num_experts} experts, got {top_k}")
    weights_TK = np.empty((tokens, top_k), np.float32)
    experts_TK = np.empty((tokens, top_k), np.int64)
    _top_k(logits_TN.float().contiguous().numpy(), weights_TK, experts_TK, renormalise)
    return torch.from_numpy(weights_TK), torch.from_numpy(experts_TK)


class Order(NamedTuple):
    """Pairs (token, chosen expert) sorted by expert. S segments, P = T·K pairs."""

    experts_S: NDArray[np.int64]
    starts_S: NDArray[np.int64]
    ends_S: NDArray[np.int64]
    tokens_P: NDArray[np.int64]
    weights_P: NDArray[np.float32]
    places_TK: NDArray[np.int64]
    """Where in the sorted order a token's k-th choice went."""

    def among(self, chosen_S: NDArray[np.bool_]) -> Order:
        """Only those segments, over the same pairs."""
        return Order(self.experts_S[chosen_S], self.starts_S[chosen_S], self.ends_S[chosen_S], *self[3:])


def by_expert(weights_TK: Tensor, experts_TK: Tensor, num_experts: int) -> Order:
    """Pairs sorted by expert, tokens of one expert in their order; experts without tokens are left out."""
    ids, weights = experts_TK.numpy(), weights_TK.numpy()
    ends_N = np.zeros(num_experts, np.int64)
    tokens_P, weights_P = np.empty(ids.size, np.int64), np.empty(ids.size, np.float32)
    places_TK = np.empty(ids.shape, np.int64)
    starts_N = _sort(ids, weights, ends_N, tokens_P, weights_P, places_TK)
    touched = np.flatnonzero(ends_N > starts_N)
    return Order(touched, starts_N[touched], ends_N[touched], tokens_P, weights_P, places_TK)


@parallel
def _top_k(logits_TN: Array, weights_TK: Array, experts_TK: Array, renormalise: bool) -> None:
    num_experts, top_k = logits_TN.shape[1], experts_TK.shape[1]
    for t in numba.prange(logits_TN.shape[0]):
        row = logits_TN[t]
        for k in range(top_k):  # insertion into a sorted list: most experts fail its first comparison
            weights_TK[t, k] = -np.inf
            experts_TK[t, k] = 0
        for n in range(num_experts):
            value = row[n]
            if value > weights_TK[t, top_k - 1] or (n < top_k):
                k = min(n, top_k - 1)
                while k > 0 and value > weights_TK[t, k - 1]:
                    weights_TK[t, k] = weights_TK[t, k - 1]
                    experts_TK[t, k] = experts_TK[t, k - 1]
                    k -= 1
                weights_TK[t, k] = value
                experts_TK[t, k] = n
        highest = weights_TK[t, 0]
        total = np.float32(0.0)
        if renormalise:  # the sum over the others cancels
            for k in range(top_k):
                total += np.exp(weights_TK[t, k] - highest)
        else:
            for n in range(num_experts):
                total += np.exp(row[n] - highest)
        for k in range(top_k):
            weights_TK[t, k] = np.exp(weights_TK[t, k] - highest) / total


@serial
def _sort(
    ids_TK: Array, weights_TK: Array, ends_N: Array, tokens_P: Array, weights_P: Array, places_TK: Array
) -> Array:
    tokens, top_k = ids_TK.shape
    starts_N = np.zeros_like(ends_N)
    for t in range(tokens):
        for k in range(top_k):
            ends_N[ids_TK[t, k]] += 1
    place = 0
    for n in range(len(ends_N)):
        starts_N[n] = place
        place += ends_N[n]
        ends_N[n] = starts_N[n]
    for t in range(tokens):
        for k in range(top_k):
            n = ids_TK[t, k]
            tokens_P[ends_N[n]] = t
            places_TK[t, k] = ends_N[n]
            weights_P[ends_N[n]] = weights_TK[t, k]
            ends_N[n] += 1
    return starts_N
