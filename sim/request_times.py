"""TTFT and TPOT of each sequence of a replay, from when its passes began and ended. `docs/metrics.md` defines both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .passes import Passes


@dataclass(frozen=True, slots=True, eq=False)
class RequestTimes:
    """Seconds of S sequences; NaN where a time is undefined. A sequence arrives when its first pass begins."""

    ttft_s: NDArray[np.float64]
    """First token − arrival; undefined without a prompt in the trace."""
    tpot_s: NDArray[np.float64]
    """(last token − first token) ÷ (n − 1) of n output tokens; undefined for n < 2."""

    @property
    def mean_ttft_s(self) -> float | None:
        return _mean(self.ttft_s)

    @property
    def mean_tpot_s(self) -> float | None:
        """Mean over requests, not over tokens."""
        return _mean(self.tpot_s)


def request_times(
    passes: Passes, pass_start_ns: NDArray[np.int64], pass_end_ns: NDArray[np.int64], first_counted_pass: int = 0
) -> RequestTimes:
    """Times of the sequences that arrive in `first_counted_pass` or later; the others stay undefined.

    A prompt's pass yields the first token and each decoded row one more. Without prompt rows the first decoded
    row yields the first token, and there is no TTFT.
    """
    counted = passes.first_pass >= first_counted_pass
    has_prompt = passes.prompt_pass >= 0
    first_token_pass = np.where(has_prompt, passes.prompt_pass, passes.first_pass)
    first_token, last_token = pass_end_ns[first_token_pass], pass_end_ns[passes.last_pass]
    ttft = (first_token - pass_start_ns[passes.first_pass]) / 1e9
    gaps = passes.decode_rows + has_prompt - 1
    tpot = np.full(len(gaps), np.nan)
    several = counted & (gaps >= 1) & (passes.decode_rows > 0)
    tpot[several] = (last_token - first_token)[several] / gaps[several] / 1e9
    return RequestTimes(np.where(counted & has_prompt, ttft, np.nan), tpot)


def output_tokens(passes: Passes, first_counted_pass: int = 0) -> int:
    """Tokens that passes from `first_counted_pass` on yield: one a decoded row, one a prompt that ends there."""
    prompts = int((passes.prompt_pass >= first_counted_pass).sum())
    if first_counted_pass == 0:
        return int(passes.decode_rows.sum()) + prompts
    logits = passes.logit_rows()
    return int(logits[first_counted_pass:].sum())


def _mean(values: NDArray[np.float64]) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
