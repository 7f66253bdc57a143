"""A model as the simulator sees it: per layer a mixer and a feed-forward, and what all of it weighs and keeps.

Sizes come in; parameters, bytes of weights and bytes of KV cache are derived here and nowhere typed in. Reading a
Hugging Face `config.json` is `model_config.py`'s part; times are `roofline.py`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ..errors import UsageError
from .ffn import Ffn, MoeFfn
from .formats import bytes_of
from .mixers import Attention, LatentAttention, LinearAttention, Mamba2, Mixer, mixer_weights

ACTIVE_MEANS = "all but the routed experts a token does not use; input embedding and output head both counted"


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer as the model's own numbering counts it. Hybrids have layers with only one of the two."""

    mixer: Mixer | None
    ffn: Ffn | None
    norm_weights: int

    @property
    def moe(self) -> MoeFfn | None:
        return self.ffn if isinstance(self.ffn, MoeFfn) else None

    @property
    def resident_weights(self) -> int:
        """Everything but routed experts."""
        ffn = (
            0 if self.ffn is None else (self.ffn.resident_weights if isinstance(self.ffn, MoeFfn) else self.ffn.weights)
        )
        return self.norm_weights + (mixer_weights(self.mixer) if self.mixer else 0) + ffn

    @property
    def matrix_weights(self) -> int:
        """The part that quantisers touch: matrices of mixer, dense layer, shared experts, latent projections."""
        total = sum(rows * columns for rows, columns in self.mixer.matrices) if self.mixer else 0
        if isinstance(self.ffn, MoeFfn):
            shared = sum(rows * columns for rows, columns in self.ffn.shared_matrices)
            latent = 0 if self.ffn.latent is None else 2 * self.ffn.hidden * self.ffn.latent
            return total + shared + latent
        return total + (sum(rows * columns for rows, columns in self.ffn.matrices) if self.ffn else 0)

    def kv_elements(self, context: int) -> int:
        """Elements of KV cache after `context` tokens; a sliding window keeps no more than its width."""
        if self.mixer is None:
            return 0
        kept = context if self.mixer.window is None else min(context, self.mixer.window)
        return kept * self.mixer.kv_elements_per_token


@dataclass(frozen=True)
class ModelSpec:
    """A decoder-only language model. Vision towers and multi-token-prediction layers are left out."""

    name: str
    source: str
    architecture: str
    hidden: int
    vocab: int
    layers: tuple[Layer, ...]
    final_norm_weights: int
    tied_embeddings: bool
    head_bias: bool = False
    notes: tuple[str, ...] = ()
    """How the config was read where it left a choice, what is assumed, what is left out."""

    def __post_init__(self) -> None:
        if not self.layers:
            raise UsageError(f"model {self.name}: has no layers")
        shapes = {(moe.num_experts, moe.top_k, moe.expert_matrices) for moe in self._moe_layers}
        if len(shapes) > 1:
            raise UsageError(f"model {self.name}: its MoE layers differ in experts, top-k or expert shape")

    @cached_property
    def moe_layer_ids(self) -> tuple[int, ...]:
        """The model's own numbers (from 0) of its mixture-of-experts layers."""
        return tuple(index for index, layer in enumerate(self.layers) if layer.moe is not None)

    @property
    def _moe_layers(self) -> list[MoeFfn]:
        return [layer.moe for layer in self.layers if layer.moe is not None]

    @property
    def moe(self) -> MoeFfn:
        """The mixture of every MoE layer. Raises `UsageError` for a dense model."""
        for layer in self.layers:
            if layer.moe is not None:
                return layer.moe
        raise UsageError(f"model {self.name} is dense: it has no routed experts")

    @property
    def is_moe(self) -> bool:
        return bool(self.moe_layer_ids)

    @property
    def num_experts(self) -> int:
        """Routed experts of each MoE layer; 0 in a dense model."""
        return self.moe.num_experts if self.is_moe else 0

    @property
    def top_k(self) -> int:
        return self.moe.top_k if self.is_moe else 0

    @property
    def embedding_params(self) -> int:
        """Both matrices where they are not tied, and the head's bias."""
        return self.vocab * self.hidden * (1 if self.tied_embeddings else 2) + self.vocab * self.head_bias

    @cached_property
    def resident_params(self) -> int:
        """Everything but routed experts."""
        return self.embedding_params + self.final_norm_weights + sum(layer.resident_weights for layer in self.layers)

    @property
    def routed_params(self) -> int:
        return sum(moe.num_experts * moe.expert_weights for moe in self._moe_layers)

    @property
    def total_params(self) -> int:
        return self.resident_params + self.routed_params

    @property
    def active_params(self) -> int:
        """Parameters one token uses, both embedding matrices counted (see `ACTIVE_MEANS`)."""
        return self.resident_params + sum(moe.top_k * moe.expert_weights for moe in self._moe_layers)

    def expert_bytes(self, format: str) -> int:
        """Bytes of one routed expert of one layer: all its matrices in `format`, scales included, biases in 16 bits."""
        return self.moe.expert_bytes(format)

    def resident_bytes(self, format: str = "bf16") -> int:
        """Bytes of everything but routed experts.

        `format` holds the matrices of mixers, dense layers, shared experts and latent projections. Embedding, head,
        router, norms and biases stay in 16 bits, as engines keep them.
        """
        matrices = sum(layer.matrix_weights for layer in self.layers)
        return bytes_of(matrices, format) + bytes_of(self.resident_params - matrices, "bf16")

    def weight_bytes(self, format: str, resident_format: str = "bf16") -> int:
        """Bytes of the whole model: routed experts in `format`, the rest in `resident_format`."""
        return self.resident_bytes(resident_format) + sum(
            m.num_experts * m.expert_bytes(format) for m in self._moe_layers
        )

    def kv_bytes_per_token(self, bits: int = 16) -> int:
        """Bytes of KV cache that one token adds to one sequence while no sliding window is full."""
        return self.kv_bytes(1, bits)

    def kv_bytes(self, context: int, bits: int = 16) -> int:
        """Bytes of KV cache of one sequence of `context` tokens, sliding windows respected."""
        return -(-sum(layer.kv_elements(context) for layer in self.layers) * bits // 8)

    @property
    def state_bytes_per_sequence(self) -> int:
        """Bytes that Mamba-2 and linear-attention layers keep for one sequence, whatever its length."""
        return sum(layer.mixer.state_bytes_per_sequence for layer in self.layers if layer.mixer)

    def kinds(self) -> list[tuple[str, int]]:
        """(kind of layer, how many), most frequent first."""
        counts: dict[str, int] = {}
        for layer in self.layers:
            kind = " + ".join(part for part in (mixer_name(layer.mixer), ffn_name(layer.ffn)) if part)
            counts[kind] = counts.get(kind, 0) + 1
        return sorted(counts.items(), key=lambda item: (-item[1], item[0]))

    def quantities(self) -> list[dict[str, object]]:
        """Every derived number: name, value, unit, kind, source."""
        rows: list[tuple[str, int, str, str]] = [
            ("total parameters", self.total_params, "parameters", "layer shapes of the config"),
            ("active parameters", self.active_params, "parameters", ACTIVE_MEANS),
            ("active parameters, no embedding", self.active_params - self.embedding_params, "parameters",
             "the same without input embedding and output head"),
            ("embedding parameters", self.embedding_params, "parameters", "vocabulary × hidden, head if not tied"),
            ("resident weights, bf16", self.resident_bytes("bf16"), "bytes", "everything but routed experts"),
            ("KV cache per token, 16 bits", self.kv_bytes_per_token(), "bytes", "all attention layers, no window full"),
            ("KV cache of 4096 tokens, 16 bits", self.kv_bytes(4096), "bytes", "sliding windows respected"),
        ]
        if self.state_bytes_per_sequence:
            rows.append(("state per sequence", self.state_bytes_per_sequence, "bytes", "Mamba-2 and linear attention"))
        if self.is_moe:
            rows += [
                ("MoE layers", len(self.moe_layer_ids), "layers", _ranges(self.moe_layer_ids)),
                ("routed experts per layer", self.num_experts, "experts", "config"),
                ("experts per token", self.top_k, "experts", "config"),
                ("parameters of one expert", self.moe.expert_weights, "parameters", "expert matrices and biases"),
                ("one expert, bf16", self.expert_bytes("bf16"), "bytes", "scales included"),
                ("one expert, q4", self.expert_bytes("q4"), "bytes", "scales included"),
            ]
        given = ("routed experts per layer", "experts per token")
        return [
            {"name": n, "value": v, "unit": u, "kind": "config" if n in given else "derived", "source": s}
            for n, v, u, s in rows
        ]

    def to_dict(self) -> dict[str, object]:
        """What `workbench model show --json` prints."""
        return {
            "name": self.name,
            "source": self.source,
            "architecture": self.architecture,
            "layers": len(self.layers),
            "layer_kinds": [{"kind": kind, "layers": count} for kind, count in self.kinds()],
            "moe_layer_ids": list(self.moe_layer_ids),
            "hidden": self.hidden,
            "vocab": self.vocab,
            "tied_embeddings": self.tied_embeddings,
            "total_params": self.total_params,
            "active_params": self.active_params,
            "active_includes": ACTIVE_MEANS,
            "kv_bytes_per_token": self.kv_bytes_per_token(),
            "quantities": self.quantities(),
            "notes": list(self.notes),
        }

    def summary_lines(self) -> list[str]:
        """What `workbench model show` prints."""
        tied = "tied to the output head" if self.tied_embeddings else "output head apart"
        lines = [
            f"{self.name} ({self.architecture})",
            f"source: {self.source}",
            f"{len(self.layers)} layers of width {self.hidden}, vocabulary {self.vocab}, embedding {tied}",
            *(f"  {count:3d} × {kind}" for kind, count in self.kinds()),
        ]
        for row in self.quantities():
            lines.append(f"  {row['name']:<34} {row['value']:>20,} {row['unit']:<11} {row['kind']:<8} {row['source']}")
        return lines + [f"  note: {note}" for note in self.notes]


def mixer_name(mixer: Mixer | None) -> str:
    """In words, with its sizes."""
    match mixer:
        case Attention(window=None):
            return f"attention {mixer.heads} heads, {mixer.kv_heads} KV heads of {mixer.head_dim}"
        case Attention():
            return (
                f"attention {mixer.heads} heads, {mixer.kv_heads} KV heads of {mixer.head_dim}, window {mixer.window}"
            )
        case LatentAttention():
            return f"latent attention {mixer.heads} heads, KV rank {mixer.kv_rank} + {mixer.rope_dim}"
        case Mamba2():
            return f"Mamba-2 {mixer.heads} heads of {mixer.head_dim}, state {mixer.state}"
        case LinearAttention():
            return f"linear attention {mixer.value_heads} heads of {mixer.value_dim}"
        case None:
            return ""


def ffn_name(ffn: Ffn | None) -> str:
    """In words, with its sizes."""
    if ffn is None:
        return ""
    if not isinstance(ffn, MoeFfn):
        return f"dense {ffn.intermediate}"
    kind = "MoE" if ffn.latent is None else f"latent MoE (width {ffn.latent})"
    shared = f" and shared {ffn.shared_intermediate}" if ffn.shared_intermediate else ""
    return f"{kind} {ffn.num_experts} experts of {ffn.intermediate}, top-{ffn.top_k}{shared}"


def _ranges(ids: Sequence[int]) -> str:
    """0–2, 5, 7–9."""
    parts: list[str] = []
    start = previous = None
    for layer in [*ids, None]:
        if start is not None and (layer is None or layer != previous + 1):  # type: ignore[operator]
            parts.append(f"{start}" if start == previous else f"{start}–{previous}")
            start = layer
        elif start is None:
            start = layer
        previous = layer
    return ", ".join(parts) if parts else "none"
