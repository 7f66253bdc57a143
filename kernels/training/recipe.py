"""What decides a training run beside the model, the text and the seed; and which models can be trained. No torch here."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import UsageError
from ...sim.ffn import DenseFfn, MoeFfn
from ...sim.mixers import Attention
from ...sim.model import Layer, ModelSpec


@dataclass(frozen=True, slots=True)
class Recipe:
    """One recipe serves every design of a comparison: designs differ in their shape alone."""

    context: int = 256
    batch: int = 8
    learning_rate: float = 3e-3
    warm_up: float = 0.05
    """Share of the steps in which the rate rises linearly; a half cosine to a twentieth of its peak follows."""
    weight_decay: float = 0.1
    clip_norm: float = 1.0
    balance_weight: float = 0.01  # this and the next as in OLMoE (arXiv 2409.02060, section 4.1)
    router_z_weight: float = 0.001
    held_out_tokens: int = 262_144
    """Tokens that the loss at the end is averaged over, at most; the same ones for every design and seed."""

    def __post_init__(self) -> None:
        for name in ("context", "batch", "held_out_tokens"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 < self.learning_rate < 1:
            raise UsageError(f"learning_rate must be above 0 and below 1, got {self.learning_rate}")
        if not 0 <= self.warm_up < 1:
            raise UsageError(f"warm_up is a share of the steps, 0 or more and below 1, got {self.warm_up}")

    @property
    def tokens_per_step(self) -> int:
        return self.batch * self.context

    def steps(self, tokens: int) -> int:
        """Whole steps that hold at least `tokens` tokens. Raises `UsageError` for fewer than one."""
        if tokens < 1:
            raise UsageError(f"tokens must be at least 1, got {tokens}")
        return -(-tokens // self.tokens_per_step)


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """What one run gave. Losses are cross entropies in nats a token."""

    held_out_loss: float
    held_out_error: float | None
    """Standard error of the loss over the windows of held-out text: how well this text stands for more of its kind. It
    is common to all models judged on the same windows, so differences between them are known better. None: one window."""
    held_out_tokens: int
    tokens: int
    """Trained on."""
    steps: int
    curve: tuple[tuple[int, float], ...]
    """(tokens so far, training loss averaged since the point before)."""
    balance: float | None
    """Load-balance loss in the last part of the curve, averaged over layers: 1 is even. None in a dense model."""
    seconds: float
    """Of the steps alone, on one thread."""


def check_trainable(spec: ModelSpec, vocab: int) -> None:
    """Raise `UsageError` for what `model.Decoder` does not know, naming layer and part."""
    if spec.vocab != vocab:
        raise UsageError(f"model {spec.name}: its vocabulary is {spec.vocab}, the text has {vocab} tokens")
    if spec.head_bias:
        raise UsageError(f"model {spec.name}: a bias of the output head cannot be trained here")
    if spec.final_norm_weights != spec.hidden:
        raise UsageError(f"model {spec.name}: needs one final norm of width {spec.hidden}")
    for index, layer in enumerate(spec.layers):
        wrong = _wrong(layer, spec.hidden)
        if wrong:
            raise UsageError(f"model {spec.name}, layer {index}: {wrong}")


def _wrong(layer: Layer, hidden: int) -> str | None:
    mixer = layer.mixer
    if not isinstance(mixer, Attention):
        kind = "no mixer" if mixer is None else type(mixer).__name__
        return f"has {kind}; only layers with grouped-query attention can be trained here"
    for name in ("qkv_bias", "out_bias", "sinks", "output_gate"):
        if getattr(mixer, name):
            return f"attention with {name} cannot be trained here"
    if mixer.head_dim % 2:
        return f"head_dim must be even for rotary positions, got {mixer.head_dim}"
    if mixer.heads % mixer.kv_heads:
        return f"{mixer.heads} heads are no multiple of {mixer.kv_heads} key-value heads"
    match layer.ffn:
        case MoeFfn() as moe:
            if moe.expert_bias or moe.router_bias:
                return "a mixture with biases cannot be trained here"
            if not 1 <= moe.top_k <= moe.num_experts:
                return f"top_k must be from 1 to the {moe.num_experts} experts there are, got {moe.top_k}"
        case DenseFfn(bias=True):
            return "a feed-forward with biases cannot be trained here"
        case None:
            return "has no feed-forward"
    if layer.norm_weights != 2 * hidden:
        return f"needs two norms of width {hidden}, before the mixer and before the feed-forward"
    return None
