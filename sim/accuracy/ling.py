"""Efficiency leverage: how much more compute a dense model needs for the same loss (Ling team 2025, arXiv 2507.17702)."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from .inputs import FloatArray
from .law import AccuracyLaw, Coefficients, LawInput, Values

DENSE_FFN = 6.0
"""d² parameters of three matrices (a gated unit) of d × 2d: the paper's granularity is 2d/m (section 2.1)."""


def _leverage(c: Coefficients, x: Values) -> FloatArray:
    offset = 1.0 / (1.0 / c["A_start"] - 1.0 / c["A_max"])
    effective = 1.0 / (1.0 / (x["activation_ratio"] + offset) + 1.0 / c["A_max"])
    log_g = np.log2(x["granularity"])
    exponent = c["a"] + c["d"] * np.log10(x["training_flops"]) + c["gamma"] * log_g**2 + c["beta"] * log_g
    leverage: FloatArray = effective**exponent
    return leverage


LING_2025 = AccuracyLaw(
    name="ling-2025",
    paper="Tian et al. (Ling team) 2025, Towards Greater Leverage: Scaling Laws for Efficient Mixture-of-Experts Language Models",
    arxiv="2507.17702",
    where="equations 10 and 13, table 2",
    formula="EL = Â^(a + d·log10 C + gamma·(log2 G)² + beta·log2 G), "
    "1/Â = 1/(A + 1/(1/A_start − 1/A_max)) + 1/A_max",
    coefficients=MappingProxyType(
        {
            "a": 1.23,
            "d": -7.61e-2,
            "gamma": 1.67e-2,
            "beta": -1.17e-1,
            "A_start": 1.63e-2,
            "A_max": 5.28e16,
        }
    ),
    predicts="compute of a dense model over that of the mixture at equal loss, on the Ling team's English and Chinese corpus",
    unit="times dense compute",
    better="higher",
    inputs=(
        LawInput(
            "activation_ratio",
            "",
            3 / 257,
            1.0,
            "A = (active + shared)/(routed + shared) experts, here by parameters; 2 of 2 to 256 experts and a shared one "
            "(table 7)",
            lambda i: i.activation_ratio,
        ),
        LawInput(
            "granularity",
            "experts per two widths",
            2,
            16,
            "G: 6·d² over an expert's parameters, which is the paper's 2d/m for experts of three matrices; table 8",
            lambda i: i.granularity(DENSE_FFN),
        ),
        LawInput(
            "training_flops",
            "FLOPs",
            1e18,
            3e20,
            "C = M·D: taken as 6 · active parameters without embeddings and routers · tokens; the paper counts the "
            "scores of attention too. Budgets of section 4.1.1",
            lambda i: 6.0 * i.active_params * i.training_tokens,
        ),
    ),
    held=(
        LawInput(
            "shared_share",
            "",
            0.0,
            10 / 12,
            "shared experts over active ones; table 9",
            lambda i: i.shared_share,
        ),
    ),
    compute=_leverage,
    notes=(
        "the paper writes log without a base; of e, 2 and 10 only log10 C with log2 G gives both of its claims: above 7 at "
        "1e22 FLOPs, A 3.1 %, G 12, and a best G of 8 to 12",
        "its sparsest ratio is 0.8 % without the shared expert, as its text counts, and 1.2 % with it, as it defines A and as "
        "is done here",
        "its validation at 1e22 FLOPs is beyond the compute it was fitted on, and is refused like any other",
        "beyond a granularity of 2 the activation ratio hardly varied: the two were swept apart",
    ),
)
