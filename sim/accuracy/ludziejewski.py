"""Joint law of dense models and mixtures: loss from active parameters, tokens and experts (arXiv 2502.05172)."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from .inputs import FloatArray
from .law import AccuracyLaw, Coefficients, LawInput, Values

DENSE_FFN = 9.0
"""d² parameters of a full-size expert: three matrices (SwiGLU) of d × 3d (section 5.1, equation 9)."""


def _loss(c: Coefficients, x: Values) -> FloatArray:
    offset = 1.0 / (1.0 / c["E_start"] - 1.0 / c["E_max"])
    effective = 1.0 / (1.0 / (x["experts"] - 1.0 + offset) + 1.0 / c["E_max"])
    log_e = np.log(effective)
    by_size = c["a"] * effective ** c["delta"] * x["active_params"] ** (c["alpha"] + c["gamma"] * log_e)
    by_data = c["b"] * effective ** c["omega"] * x["training_tokens"] ** (c["beta"] + c["zeta"] * log_e)
    loss: FloatArray = by_size + by_data + c["c"]
    return loss


LUDZIEJEWSKI_2025 = AccuracyLaw(
    name="ludziejewski-2025",
    paper="Ludziejewski et al. 2025, Joint MoE Scaling Laws: Mixture of Experts Can Be Memory Efficient",
    arxiv="2502.05172",
    where="equations 4 and 6, table 3 (appendix B)",
    formula="L = a·Ê^delta·N^(alpha + gamma·ln Ê) + b·Ê^omega·D^(beta + zeta·ln Ê) + c, "
    "1/Ê = 1/(E − 1 + 1/(1/E_start − 1/E_max)) + 1/E_max",
    coefficients=MappingProxyType(
        {
            "a": 35.91,
            "alpha": -0.1889,
            "delta": -0.2285,
            "gamma": 0.0098,
            "b": 35.98,
            "beta": -0.1775,
            "omega": 0.5529,
            "zeta": -0.0259,
            "E_start": 2.0732,
            "E_max": 290.4521,
            "c": 1.3637,
        }
    ),
    predicts="loss on FineWeb-Edu, GPT-2 tokenizer, one full-size expert per token (Switch)",
    unit="nats per token",
    better="lower",
    inputs=(
        LawInput(
            "active_params",
            "parameters",
            79e6,
            2.7e9,
            "N: parameters a token uses, embedding and output head included, routers not; appendix E",
            lambda i: i.active_params + i.embedding_params,
        ),
        LawInput(
            "training_tokens",
            "tokens",
            500e6,
            80e9,
            "D: tokens seen; appendix E",
            lambda i: i.training_tokens,
        ),
        LawInput(
            "experts",
            "experts per active one",
            1,
            32,
            "E: experts, one of which is active, hence a layer's expert parameters over those a token uses; appendix E",
            lambda i: i.expansion_rate,
        ),
        LawInput(
            "tokens_per_active_param",
            "tokens per parameter",
            0.36,
            73,
            "D/N of the runs in appendix E; the paper warns of much over- and undertrained models",
            lambda i: i.tokens_per_active_param,
        ),
    ),
    held=(
        LawInput(
            "granularity",
            "experts per dense feed-forward",
            0.95,
            1.05,
            "9·d² over an expert's parameters: always full-size experts",
            lambda i: i.granularity(DENSE_FFN),
        ),
        LawInput("top_k", "experts", 1, 1, "one expert per token", lambda i: i.top_k),
        LawInput("shared_share", "", 0.0, 0.0, "no shared experts", lambda i: i.shared_share),
    ),
    compute=_loss,
    residual_rmse=0.0062,
    notes=("finer experts are likely better than this law of full-size ones says (its section 6)",),
)
