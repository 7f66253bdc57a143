"""Parameters against FLOPs: loss from total parameters, tokens and sparsity (Abnar et al. 2025, arXiv 2501.12370)."""

from __future__ import annotations

from types import MappingProxyType

from .inputs import FloatArray
from .law import AccuracyLaw, Coefficients, LawInput, Values

DENSE_FFN = 12.0
"""d² parameters of a feed-forward of granularity 1: three matrices (a gated unit) of d × 4d (appendix C)."""


def _loss(c: Coefficients, x: Values) -> FloatArray:
    active = 1.0 - x["sparsity"]
    total = x["total_params"]
    loss: FloatArray = (
        c["a"] / total ** c["alpha"]
        + c["b"] / x["training_tokens"] ** c["beta"]
        + c["c"] / active ** c["lambda"]
        + c["d"] / (active ** c["delta"] * total ** c["gamma"])
        + c["e"]
    )
    return loss


ABNAR_2025 = AccuracyLaw(
    name="abnar-2025",
    paper="Abnar et al. 2025, Parameters vs FLOPs: Scaling Laws for Optimal Sparsity for Mixture-of-Experts Language Models",
    arxiv="2501.12370",
    where="equation 6, table 3 (appendix F)",
    formula="L = a / N^alpha + b / D^beta + c / (1 − S)^lambda + d / ((1 − S)^delta · N^gamma) + e",
    coefficients=MappingProxyType(
        {
            "a": 16612.50,
            "alpha": 0.5962,
            "b": 5455.67,
            "beta": 0.3954,
            "c": 0.4598,
            "lambda": -0.1666,
            "d": 17.26,
            "delta": 0.1603,
            "gamma": 0.1595,
            "e": 0.94,
        }
    ),
    predicts="pretraining loss on RedPajama v1, GPT-NeoX tokenizer, dropless routing",
    unit="nats per token",
    better="lower",
    inputs=(
        LawInput(
            "total_params",
            "parameters",
            178e6,
            26e9,
            "N: every parameter, embeddings and routers included; the axis of figure 2(b), no models are listed",
            lambda i: i.total_params + i.embedding_params + i.router_params,
        ),
        LawInput(
            "active_params",
            "parameters",
            66e6,
            10e9,
            "Na: those of N that a token uses; in no formula, it bounds D; the axis of figure 1(b)",
            lambda i: i.active_params + i.embedding_params + i.router_params,
        ),
        LawInput(
            "sparsity",
            "",
            0.0,
            0.95,
            "S: experts a token does not use over all experts; table 1, without the 0.98 held out of the fit",
            lambda i: i.sparsity,
        ),
        LawInput(
            "training_tokens",
            "tokens",
            3e19 / (6 * 10e9),
            1e21 / (6 * 66e6),
            "D: tokens seen; no range is stated, this is what the budgets and the active parameters leave",
            lambda i: i.training_tokens,
        ),
        LawInput(
            "training_flops",
            "FLOPs",
            3e19,
            1e21,
            "C = 6·Na·D; in no formula, it bounds D: budgets of appendix D.1",
            lambda i: 6.0 * (i.active_params + i.embedding_params + i.router_params) * i.training_tokens,
        ),
    ),
    held=(
        LawInput(
            "granularity",
            "experts per dense feed-forward",
            1,
            2,
            "12·d² over an expert's parameters: tuned over 1 and 2 (table 1)",
            lambda i: i.granularity(DENSE_FFN),
        ),
        LawInput("shared_share", "", 0.0, 0.0, "no shared experts", lambda i: i.shared_share),
    ),
    compute=_loss,
    notes=(
        "fitted on compute-optimal runs: a design trained on far more tokens than that is unlike all of them",
        "on the held-out sparsity of 0.98 its mean squared error is ten times that of the fit (0.0058 against 0.00056)",
        "sparser models read and reason worse than denser ones of the same loss (its section 4)",
    ),
)
