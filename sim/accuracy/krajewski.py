"""Fine-grained mixtures: loss from total parameters, tokens and granularity (Krajewski et al. 2024, arXiv 2402.07871).

Equation 9 at an expansion rate of 64 (table 1) and of 16 (table 8, appendix D). The expansion rate stands in no formula
but in the coefficients, so each fit is a law of its own and refuses other rates.
"""

from __future__ import annotations

from types import MappingProxyType

from .inputs import FloatArray
from .law import AccuracyLaw, Coefficients, LawInput, Values

DENSE_FFN = 8.0
"""d² parameters of the dense feed-forward that granularity is measured against: two matrices of d × 4d."""
AS_FITTED = 0.05
"""Our choice, not the paper's: experts come whole and widths in multiples of 64, so this much either side is the same."""


def _loss(c: Coefficients, x: Values) -> FloatArray:
    by_size = (c["g"] / x["granularity"] ** c["gamma"] + c["a"]) / x["total_params"] ** c["alpha"]
    loss: FloatArray = c["c"] + by_size + c["b"] / x["training_tokens"] ** c["beta"]
    return loss


def _law(
    name: str, table: str, coefficients: dict[str, float], expansion: float, params: tuple[float, float],
    tokens: tuple[float, float], listing: str, residual_rmse: float | None, *notes: str,
) -> AccuracyLaw:  # fmt: skip
    return AccuracyLaw(
        name=name,
        paper="Krajewski et al. 2024, Scaling Laws for Fine-Grained Mixture of Experts",
        arxiv="2402.07871",
        where=f"equation 9, {table}",
        formula="L = c + (g / G^gamma + a) / N^alpha + b / D^beta",
        coefficients=MappingProxyType(coefficients),
        predicts="smoothed training loss on C4, GPT-2 tokenizer, expert-choice routing",
        unit="nats per token",
        better="lower",
        inputs=(
            LawInput("total_params", "parameters", *params,
                     f"N: all parameters without embeddings and routers; models of {listing}", lambda i: i.total_params),
            LawInput("training_tokens", "tokens", *tokens, f"D: tokens seen; {listing}", lambda i: i.training_tokens),
            LawInput("granularity", "experts per dense feed-forward", 1, 16,
                     "G: 8·d² over an expert's parameters, which is the paper's 4d/m for experts of two matrices",
                     lambda i: i.granularity(DENSE_FFN)),
            LawInput("expansion_rate", "times", expansion * (1 - AS_FITTED), expansion * (1 + AS_FITTED),
                     f"E: a layer's expert parameters over those a token uses; fitted at {expansion:g} alone, 5 % either "
                     "side taken for it", lambda i: i.expansion_rate),
        ),
        held=(
            LawInput("active_ffn", "dense feed-forwards", 1 - AS_FITTED, 1 + AS_FITTED,
                     "expert parameters a token uses in a layer over 8·d²: always one full feed-forward (K = G)",
                     lambda i: i.active_expert_params / (DENSE_FFN * i.hidden**2)),
        ),
        compute=_loss,
        residual_rmse=residual_rmse,
        notes=("the largest models and the finest experts were not trained together: corners of the ranges are unseen",
               *notes),
    )  # fmt: skip


KRAJEWSKI_2024 = _law(
    "krajewski-2024", "table 1",
    {"a": 18.1, "alpha": 0.115, "b": 30.8, "beta": 0.147, "g": 2.1, "gamma": 0.58, "c": 0.47},
    64.0, (129e6, 3.7e9), (16e9, 130e9), "section 5 and table 3", 0.015,
    "with the coefficients as printed, losses of its table 2 come out 0.7 to 0.9 % lower than printed",
)  # fmt: skip

KRAJEWSKI_2024_E16 = _law(
    "krajewski-2024-e16", "table 8",
    {"a": 19.64, "alpha": 0.124, "b": 57.07, "beta": 0.169, "g": 1.18, "gamma": 0.986, "c": 0.472},
    # Sizes by the paper's own N = d²·(8·E + 4)·layers: 256 wide and 4 deep to 640 wide and 10 deep.
    16.0, (34.6e6, 541e6), (8e9, 66e9), "table 7, by its widths and depths", None,
    "fitted on fewer and shorter runs than the fit at an expansion rate of 64; its error is not stated",
)  # fmt: skip
