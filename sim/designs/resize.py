"""The model around the mixture, resized: another width, another depth, other mixers. Each gives a `ModelSpec` again."""

from __future__ import annotations

from dataclasses import replace

from ...errors import UsageError
from ..ffn import DenseFfn, Ffn, MoeFfn
from ..mixers import Attention, LatentAttention, LinearAttention, Mamba2, Mixer
from ..model import Layer, ModelSpec

_HEAD, _STATE, _GROUPS, _CONV = 64, 128, 8, 4
"""Mamba-2 where the base has none: inner width 2·d in heads of 64, state 128, convolution 4 (arXiv 2405.21060); 8 groups
as in Nemotron-3 (its config.json)."""
MIXERS = "base, attention, mamba2, or attention/N: attention in every N-th mixer and Mamba-2 in the others"


def resized(
    model: ModelSpec, *, hidden: int | None = None, layers: int | None = None, mixers: str = "base"
) -> ModelSpec:
    """The base at another width, depth and choice of mixers.

    Width: heads grow with it (head sizes and latent ranks stay), dense layers and shared experts too. Depth: the pattern
    of layers is stretched, so that kinds keep their shares. Raises `UsageError` where a count would not be whole.
    """
    chosen = list(model.layers)
    if mixers != "base":
        chosen = _with_mixers(chosen, model.hidden, mixers)
    if layers is not None and layers != len(chosen):
        if layers < 1:
            raise UsageError(f"layers must be at least 1, got {layers}")
        chosen = [chosen[place * len(chosen) // layers] for place in range(layers)]
    if hidden is not None and hidden != model.hidden:
        chosen = [_wider(layer, model.hidden, hidden) for layer in chosen]
    width = model.hidden if hidden is None else hidden
    if tuple(chosen) == model.layers and width == model.hidden:
        return model
    norm = _scaled(model.final_norm_weights, model.hidden, width, "final norm")
    return replace(model, hidden=width, layers=tuple(chosen), final_norm_weights=norm)


def _scaled(count: int, old: int, new: int, what: str) -> int:
    if count * new % old:
        raise UsageError(f"width {new}: {what} {count} at width {old} would become {count * new / old:g}")
    return count * new // old


def _wider(layer: Layer, old: int, new: int) -> Layer:
    mixer = None if layer.mixer is None else _wider_mixer(layer.mixer, old, new)
    return Layer(mixer, _wider_ffn(layer.ffn, old, new), _scaled(layer.norm_weights, old, new, "norm weights"))


def _wider_ffn(ffn: Ffn | None, old: int, new: int) -> Ffn | None:
    if isinstance(ffn, DenseFfn):
        return replace(
            ffn, hidden=new, intermediate=_scaled(ffn.intermediate, old, new, "dense intermediate")
        )
    if isinstance(ffn, MoeFfn):
        return replace(ffn, hidden=new)
    return None


def _wider_mixer(mixer: Mixer, old: int, new: int) -> Mixer:
    if isinstance(mixer, Attention):
        heads = _scaled(mixer.heads, old, new, "heads")
        ratio = mixer.heads // mixer.kv_heads
        kv_heads = max(1, heads // ratio)
        if heads % kv_heads:
            raise UsageError(f"width {new}: {heads} heads cannot share {kv_heads} KV heads evenly")
        return replace(mixer, hidden=new, heads=heads, kv_heads=kv_heads)
    if isinstance(mixer, LatentAttention):
        return replace(mixer, hidden=new, heads=_scaled(mixer.heads, old, new, "heads"))
    if isinstance(mixer, Mamba2):
        return replace(mixer, hidden=new, heads=_scaled(mixer.heads, old, new, "Mamba-2 heads"))
    gates = tuple(
        (new if rows == old else rows, new if columns == old else columns)
        for rows, columns in mixer.gate_matrices
    )
    return replace(
        mixer, hidden=new, key_heads=_scaled(mixer.key_heads, old, new, "key heads"),
        value_heads=_scaled(mixer.value_heads, old, new, "value heads"), gate_matrices=gates,
    )  # fmt: skip


def _with_mixers(layers: list[Layer], hidden: int, mixers: str) -> list[Layer]:
    """Every mixer replaced; layers without one stay as they are."""
    every = _every(mixers)
    attention = next((one.mixer for one in layers if isinstance(one.mixer, Attention | LatentAttention)), None)
    if every != 0 and attention is None:
        raise UsageError(f"mixers {mixers!r}: the base has no attention to take")
    mamba = next((one.mixer for one in layers if isinstance(one.mixer, Mamba2)), None)
    if mamba is None:
        mamba = Mamba2(hidden, 2 * hidden // _HEAD, _HEAD, _GROUPS, _STATE, _CONV)
    made, seen = [], 0
    for layer in layers:
        if layer.mixer is None:
            made.append(layer)
            continue
        seen += 1
        use = attention if every and seen % every == 0 else mamba
        made.append(Layer(use, layer.ffn, layer.norm_weights))
    return made


def _every(mixers: str) -> int:
    """1: attention everywhere; 0: nowhere; N: in every N-th."""
    if mixers == "attention":
        return 1
    if mixers == "mamba2":
        return 0
    head, _, tail = mixers.partition("/")
    if head == "attention" and tail.isdecimal() and 2 <= int(tail) <= 1000:
        return int(tail)
    raise UsageError(f"unknown mixers {mixers!r}; write {MIXERS}")


def sharded(mixer: Mixer, tp: int) -> Mixer:
    """What one of `tp` ranks computes of a mixer. Raises `UsageError` where its heads cannot be dealt out evenly.

    KV heads fewer than ranks are held several times, as engines do. A latent attention's down projections stay whole.
    """
    if tp == 1:
        return mixer
    match mixer:
        case Attention():
            _divides(tp, mixer.heads, "attention heads")
            return replace(mixer, heads=mixer.heads // tp, kv_heads=max(1, mixer.kv_heads // tp))
        case LatentAttention():
            _divides(tp, mixer.heads, "attention heads")
            return replace(mixer, heads=mixer.heads // tp)
        case Mamba2():
            _divides(tp, mixer.heads, "Mamba-2 heads")
            return replace(mixer, heads=mixer.heads // tp, groups=max(1, mixer.groups // tp))
        case LinearAttention():
            _divides(tp, mixer.key_heads, "key heads")
            _divides(tp, mixer.value_heads, "value heads")
            return replace(mixer, key_heads=mixer.key_heads // tp, value_heads=mixer.value_heads // tp)


def _divides(tp: int, count: int, what: str) -> None:
    if count % tp:
        raise UsageError(f"tp {tp}: {count} {what} cannot be dealt out evenly")
