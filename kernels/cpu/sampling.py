"""One token id per row of logits: softmax at a temperature, and a draw by inversion."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...errors import UsageError


def sampling(logits_RV: Tensor, uniforms_R: Tensor, *, temperature: float = 1.0) -> Tensor:
    """ids_R (int64): the first id at which the summed probabilities exceed the row's uniform number in [0, 1).

    A temperature of 0 takes the largest logit. Raises `UsageError` for a negative or not finite temperature.
    """
    if not (math.isfinite(temperature) and temperature >= 0):
        raise UsageError(f"temperature must be 0 or above, got {temperature}")
    if uniforms_R.shape != logits_RV.shape[:1]:
        raise UsageError(
            f"one uniform number a row is needed, got {list(uniforms_R.shape)} for {list(logits_RV.shape)}"
        )
    with torch.inference_mode():
        if temperature == 0:
            return logits_RV.argmax(dim=-1)
        summed_RV = torch.softmax(logits_RV.float() / temperature, dim=-1).cumsum_(dim=-1)
        wanted_R1 = (uniforms_R.float() * summed_RV[:, -1])[:, None]  # the sum is 1 but for rounding
        ids_R = torch.searchsorted(summed_RV, wanted_R1, right=True)[:, 0]
        return ids_R.clamp_(max=logits_RV.shape[1] - 1)
