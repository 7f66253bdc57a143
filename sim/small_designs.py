"""Small models to compare designs by really training them: a standard mixture, and latent ones of the same active cost."""

from __future__ import annotations

from dataclasses import replace

from ..errors import UsageError
from .active_flops import matched_width, with_expert_width
from .ffn import MoeFfn
from .mixers import Attention
from .model import Layer, ModelSpec

SOURCE = "built for training at small scale"


def small_moe(
    name: str = "standard",
    *,
    hidden: int = 128,
    layers: int = 4,
    heads: int = 4,
    num_experts: int = 16,
    top_k: int = 2,
    expert_width: int = 128,
    gated: bool = True,
    shared_width: int = 0,
    vocab: int = 256,
) -> ModelSpec:
    """A standard mixture in every layer, multi-head attention, untied embeddings; 256 tokens are the bytes.

    The defaults train a few million tokens in some ten minutes on one core. Raises `UsageError` for sizes that do not fit.
    """
    if hidden % heads or (hidden // heads) % 2:
        raise UsageError(f"hidden {hidden} must be an even multiple of heads {heads}")
    if not 1 <= top_k <= num_experts:
        raise UsageError(f"top_k must be from 1 to the {num_experts} experts there are, got {top_k}")
    dim = hidden // heads
    moe = MoeFfn(hidden, num_experts, top_k, expert_width, gated=gated, shared_intermediate=shared_width)
    layer = Layer(Attention(hidden, heads, heads, dim, dim), moe, 2 * hidden)
    return ModelSpec(name, SOURCE, "decoder", hidden, vocab, (layer,) * layers, hidden, False)


def latent_of(
    base: ModelSpec,
    compression: int,
    *,
    name: str | None = None,
    scale_top_k: bool = True,
    multiple: int = 4,
) -> ModelSpec:
    """`base` with routed experts at width d / α, α times as many, of which α times as many are used (arXiv 2601.18089).

    The experts' width is the one at which a token costs the same arithmetic as in `base` (`matched_width`), so what
    router and projections cost is taken from the experts. With `scale_top_k=False` (the paper's variant for efficiency) K
    stays, and experts are wider instead. Raises `UsageError` where d does not divide, or where no width fits.
    """
    moe = base.moe
    if moe.latent is not None:
        raise UsageError(f"{base.name} is latent already")
    if compression < 2 or base.hidden % compression:
        raise UsageError(
            f"compression must be a divisor of hidden {base.hidden} and at least 2, got {compression}"
        )
    latent = replace(
        moe,
        latent=base.hidden // compression,
        num_experts=moe.num_experts * compression,
        top_k=moe.top_k * compression if scale_top_k else moe.top_k,
    )
    layers = tuple(replace(layer, ffn=latent) if layer.moe is not None else layer for layer in base.layers)
    called = name or f"latent-{compression}"
    design = replace(base, name=called, source=SOURCE, layers=layers)
    return with_expert_width(design, matched_width(base, design, multiple=multiple))
