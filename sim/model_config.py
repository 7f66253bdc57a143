"""From a Hugging Face `config.json` to a `ModelSpec`.

One small table says what an architecture's code does that its config does not state (biases, norms of queries and
keys, gates). An architecture that is not in it is refused: guessed shapes would give believable wrong numbers.
Checked against the parameter counts of Hugging Face's own classes: `tests/unit/test_model_weights.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import InputFileError, unknown_name
from ..files import existing_file
from .ffn import DenseFfn, Ffn, MoeFfn
from .mixers import Attention, LatentAttention, LinearAttention, Mamba2, Matrix, Mixer
from .model import Layer, ModelSpec
from .model_facts import Facts, head_dim, language_part, moe_layer_flags

_MOST_LAYERS = 10_000
_MOST_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Family:
    """What an architecture's code fixes. A bias is fixed, or the name of the config's field with its default."""

    qkv_bias: bool | tuple[str, bool] = ("attention_bias", False)
    out_bias: bool | tuple[str, bool] = ("attention_bias", False)
    qk_norm: Literal["none", "head", "whole"] | tuple[str, bool] = "none"
    """A name of a field stands for "head" where that field is true."""
    sinks: bool = False
    output_gate: bool = False
    mlp_bias: bool | tuple[str, bool] = False
    router_bias: bool | tuple[str, bool] = False
    expert_bias: bool = False
    shared_gate: bool = False
    gated: bool = True
    norm_vectors: int = 1
    """1 for RMS norms, 2 for layer norms with a bias."""
    head_bias: bool | tuple[str, bool] = False


_LLAMA = Family(mlp_bias=("mlp_bias", False))
_NO_BIAS = Family(qkv_bias=False, out_bias=False)
_QWEN3 = Family(qk_norm="head")
_QWEN_NEXT = Family(qk_norm="head", output_gate=True, shared_gate=True)
_DEEPSEEK3 = Family(router_bias=True)
FAMILIES: Mapping[str, Family] = {
    "llama": _LLAMA,
    "llama4": Family(),
    "mistral": _NO_BIAS,
    "mixtral": _NO_BIAS,
    "qwen2": Family(qkv_bias=True, out_bias=False),
    "qwen2_moe": Family(qkv_bias=("qkv_bias", True), out_bias=False, shared_gate=True),
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3,
    "qwen3_vl_moe": _QWEN3,
    "qwen3_next": _QWEN_NEXT,
    "qwen3_5_moe": _QWEN_NEXT,
    "olmoe": Family(qk_norm="whole"),
    "deepseek_v2": Family(),
    "deepseek_v3": _DEEPSEEK3,
    "kimi_k2": _DEEPSEEK3,
    "kimi_linear": Family(router_bias=True),
    "gpt_oss": Family(
        qkv_bias=("attention_bias", True), out_bias=("attention_bias", True), sinks=True, router_bias=True,
        expert_bias=True,
    ),
    "nemotron_h": Family(mlp_bias=("mlp_bias", False), router_bias=True, gated=False, out_bias=False, qkv_bias=False),
    "phimoe": Family(norm_vectors=2, head_bias=("lm_head_bias", False)),
    "minimax_m2": Family(qkv_bias=False, out_bias=False, qk_norm="whole", router_bias=("use_routing_bias", True)),
    "glm4_moe": Family(out_bias=False, qk_norm=("use_qk_norm", False), router_bias=True),
    "granitemoe": Family(),
    "ernie4_5_moe": Family(
        qkv_bias=("use_bias", False), out_bias=("use_bias", False), mlp_bias=("use_bias", False), router_bias=True,
        head_bias=("use_bias", False),
    ),
}  # fmt: skip
"""`model_type` → what its code fixes."""

_ATTENTION_KINDS = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "window",
    "chunked_attention": "window",
    "linear_attention": "linear",
}
_HYBRID_LETTERS = {"M": "mamba", "*": "attention", "E": "moe", "-": "mlp"}


def read_model_config(path: str | Path) -> ModelSpec:
    """The model of a `config.json` (or of a directory that holds one). Raises `UsageError` naming file and field.

    Also reads the catalog's own form, which keeps the config beside its name and sources.
    """
    where = Path(path)
    if where.is_dir():
        where = where / "config.json"
    existing_file(where)
    if where.stat().st_size > _MOST_BYTES:
        raise InputFileError(where, f"is larger than {_MOST_BYTES // 2**20} MiB: not a model config")
    try:
        document = json.loads(where.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputFileError(where, "is not UTF-8 text") from error
    except json.JSONDecodeError as error:
        raise InputFileError(where, f"is not JSON: {error.msg}", f"line {error.lineno}") from error
    except RecursionError as error:
        raise InputFileError(where, "is nested too deeply") from error
    if not isinstance(document, dict):
        raise InputFileError(where, "must hold one JSON object")
    if isinstance(document.get("config"), dict) and isinstance(document.get("name"), str):
        notes = [note for note in document.get("notes", ()) if isinstance(note, str)]
        given, source = document["config"], str(document.get("source", where))
        return model_from_config(given, name=document["name"], source=source, where=str(where), notes=notes)
    name = document.get("_name_or_path") or (where.parent.name if where.name == "config.json" else where.stem)
    return model_from_config(document, name=str(name) or where.stem, source=str(where), where=str(where))


def model_from_config(
    config: Mapping[str, object], *, name: str, source: str, where: str | None = None, notes: list[str] | None = None
) -> ModelSpec:
    """The model of a config that is already in memory. `where` names it in errors."""
    fields = language_part(config)
    facts = Facts(fields, where or name)
    facts.notes.extend(notes or ())
    model_type = (facts.text("model_type") or "").removesuffix("_text")
    if not model_type:
        raise facts.error("model_type", "is missing; it names the architecture")
    if model_type not in FAMILIES:
        raise unknown_name(f"architecture (model_type in {where or name})", model_type, FAMILIES)
    family = FAMILIES[model_type]
    hidden, count = facts.need("hidden"), _number_of_layers(facts)
    layers = _layers(facts, family, model_type, hidden, count)
    if facts.find("num_nextn_predict_layers", least=0) or facts.find("mtp_num_hidden_layers", least=0):
        facts.note("multi-token-prediction layers are left out")
    if isinstance(config.get("vision_config"), dict):
        facts.note("vision tower is left out")
    return ModelSpec(
        name=name,
        source=source,
        architecture=model_type,
        hidden=hidden,
        vocab=facts.need("vocab"),
        layers=tuple(layers),
        final_norm_weights=hidden * family.norm_vectors,
        tied_embeddings=facts.flag("tie_word_embeddings", False),
        head_bias=_bias(facts, family.head_bias),
        notes=tuple(facts.notes),
    )


def _number_of_layers(facts: Facts) -> int:
    pattern = facts.text("hybrid_override_pattern")
    count = facts.find("layers")
    if count is None and pattern:
        count = len(pattern)
    if count is None:
        listed = facts.raw("layers_block_type")
        count = len(listed) if isinstance(listed, list) and listed else facts.need("layers")
    if count > _MOST_LAYERS:
        raise facts.error("num_hidden_layers", f"must be at most {_MOST_LAYERS}, got {count}")
    return count


def _bias(facts: Facts, rule: bool | tuple[str, bool]) -> bool:
    return rule if isinstance(rule, bool) else facts.flag(*rule)


def _layers(facts: Facts, family: Family, model_type: str, hidden: int, count: int) -> list[Layer]:
    if model_type == "nemotron_h":
        return _hybrid_layers(facts, family, hidden, count)
    mixers = _mixers(facts, family, model_type, hidden, count)
    flags = moe_layer_flags(facts, count)
    moe = _moe(facts, family, model_type, hidden) if any(flags) else None
    dense = _dense(facts, family, model_type, hidden) if not all(flags) else None
    norms = 2 * hidden * family.norm_vectors
    ffns: list[Ffn | None] = [moe if is_moe else dense for is_moe in flags]
    return [Layer(mixer, ffn, norms) for mixer, ffn in zip(mixers, ffns, strict=True)]


def _hybrid_layers(facts: Facts, family: Family, hidden: int, count: int) -> list[Layer]:
    """Nemotron-H: each layer is one block behind one norm; a pattern says which."""
    pattern = facts.text("hybrid_override_pattern")
    if pattern is not None:
        if len(pattern) != count:
            raise facts.error("hybrid_override_pattern", f"has {len(pattern)} letters for {count} layers")
        odd = sorted(set(pattern) - set(_HYBRID_LETTERS))
        if odd:
            raise facts.error("hybrid_override_pattern", f"has {odd[0]!r}; known: {', '.join(_HYBRID_LETTERS)}")
        kinds = [_HYBRID_LETTERS[letter] for letter in pattern]
    else:
        known = {"mamba": "mamba", "attention": "attention", "moe": "moe", "mlp": "mlp"}
        words = facts.words("layers_block_type", count, known)
        if words is None:
            raise facts.error("hybrid_override_pattern", "is missing; it says what each layer is")
        kinds = words
    made: dict[str, Layer] = {}
    for kind in kinds:
        if kind in made:
            continue
        if kind == "mamba":
            made[kind] = Layer(_mamba2(facts, hidden), None, hidden)
        elif kind == "attention":
            made[kind] = Layer(_attention(facts, family, hidden, None), None, hidden)
        elif kind == "moe":
            made[kind] = Layer(None, _moe(facts, family, "nemotron_h", hidden), hidden)
        else:
            made[kind] = Layer(None, _dense(facts, family, "nemotron_h", hidden), hidden)
    return [made[kind] for kind in kinds]


def _mamba2(facts: Facts, hidden: int) -> Mamba2:
    return Mamba2(
        hidden=hidden,
        heads=facts.need("mamba_num_heads"),
        head_dim=facts.need("mamba_head_dim"),
        groups=facts.need("n_groups"),
        state=facts.need("ssm_state_size"),
        conv=facts.need("conv_kernel"),
        conv_bias=facts.flag("use_conv_bias", True),
        bias=facts.flag("use_bias", False),
    )


def _mixers(facts: Facts, family: Family, model_type: str, hidden: int, count: int) -> list[Mixer]:
    kinds = _mixer_kinds(facts, model_type, count)
    window = facts.find("attention_chunk_size") if model_type == "llama4" else facts.find("sliding_window")
    if "window" in kinds and window is None:
        raise facts.error("sliding_window", "is missing, but layer_types names layers with one")
    made: dict[str, Mixer] = {}
    for kind in dict.fromkeys(kinds):
        if kind == "linear":
            made[kind] = _linear_attention(facts, model_type, hidden)
        elif facts.has("kv_lora_rank"):
            made[kind] = _latent_attention(facts, hidden)
        else:
            made[kind] = _attention(facts, family, hidden, window if kind == "window" else None)
    return [made[kind] for kind in kinds]


def _mixer_kinds(facts: Facts, model_type: str, count: int) -> list[str]:
    """ "full", "window" or "linear" for each layer."""
    stated = facts.words("layer_types", count, _ATTENTION_KINDS)
    if stated is not None:
        return stated
    if facts.has("linear_attn_config"):
        linear = facts.table("linear_attn_config")
        full = set(linear.integers("full_attn_layers", count + 1, first=1) or ())
        kda = set(linear.integers("kda_layers", count + 1, first=1) or ())
        if full & kda or len(full | kda) != count:
            raise facts.error("linear_attn_config", f"must place each of layers 1 to {count} in one of its two lists")
        return ["full" if layer + 1 in full else "linear" for layer in range(count)]
    interval = facts.find("full_attention_interval")
    if interval is None and model_type in ("qwen3_next", "qwen3_5_moe"):
        interval = 4
        facts.note("full_attention_interval 4 is the architecture's default: the config states none")
    if interval is not None:
        return ["full" if (layer + 1) % interval == 0 else "linear" for layer in range(count)]
    if model_type == "llama4" and facts.has("attention_chunk_size"):
        return ["full" if (layer + 1) % 4 == 0 else "window" for layer in range(count)]
    if facts.find("sliding_window") is None or not facts.flag("use_sliding_window", True):
        return ["full"] * count
    if model_type.startswith("qwen"):
        start = facts.find("max_window_layers", least=0) or 0
        return ["full" if layer < start else "window" for layer in range(count)]
    return ["window"] * count


def _attention(facts: Facts, family: Family, hidden: int, window: int | None) -> Attention:
    heads = facts.need("heads")
    kv_heads = facts.find("kv heads")
    if kv_heads is None:
        kv_heads = heads
        facts.note(f"num_key_value_heads is not stated: {heads}, as many as heads")
    if heads % kv_heads:
        raise facts.error("num_key_value_heads", f"must divide {heads} heads, got {kv_heads}")
    size = head_dim(facts, hidden, heads)
    qk_norm = family.qk_norm
    if isinstance(qk_norm, tuple):
        qk_norm = "head" if facts.flag(*qk_norm) else "none"
    return Attention(
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=size,
        value_dim=facts.find("v_head_dim") or size,
        window=window,
        qkv_bias=_bias(facts, family.qkv_bias),
        out_bias=_bias(facts, family.out_bias),
        qk_norm=qk_norm,
        sinks=family.sinks,
        output_gate=family.output_gate,
    )


def _latent_attention(facts: Facts, hidden: int) -> LatentAttention:
    return LatentAttention(
        hidden=hidden,
        heads=facts.need("heads"),
        q_rank=facts.find("q_lora_rank"),
        kv_rank=facts.need("kv_lora_rank"),
        nope_dim=facts.need("qk_nope_head_dim"),
        rope_dim=facts.need("qk_rope_head_dim", least=0),
        value_dim=facts.need("v_head_dim"),
        bias=facts.flag("attention_bias", False),
        output_gate=facts.flag("mla_use_output_gate", False),
    )


def _linear_attention(facts: Facts, model_type: str, hidden: int) -> LinearAttention:
    if model_type == "kimi_linear":
        return _kimi_delta(facts, hidden)
    key_heads, value_heads = facts.need("linear_num_key_heads"), facts.need("linear_num_value_heads")
    value_dim = facts.need("linear_value_head_dim")
    return LinearAttention(  # Gated DeltaNet: z gate; b and a per value head; dt_bias and A_log; output norm
        hidden=hidden,
        key_heads=key_heads,
        value_heads=value_heads,
        key_dim=facts.need("linear_key_head_dim"),
        value_dim=value_dim,
        conv=facts.need("linear_conv_kernel_dim"),
        gate_matrices=((hidden, value_heads * value_dim), (hidden, 2 * value_heads)),
        gate_weights=2 * value_heads + value_dim,
    )


def _kimi_delta(facts: Facts, hidden: int) -> LinearAttention:
    """Kimi Delta Attention: a low-rank decay per channel, a step per head, an output gate (low-rank or full)."""
    nested = facts.table("linear_attn_config")
    flat = not facts.has("linear_attn_config")
    heads = facts.need("linear_num_heads") if flat else nested.need("num_heads")
    size = facts.need("linear_head_dim") if flat else nested.need("head_dim")
    conv = facts.need("linear_conv_kernel_dim") if flat else nested.need("short_conv_kernel_size")
    wide = heads * size
    low_rank: tuple[Matrix, ...] = ((hidden, size), (size, wide))
    full_gate = nested.flag("use_full_rank_gate", False)
    gate: tuple[Matrix, ...] = ((hidden, wide),) if full_gate else low_rank
    return LinearAttention(
        hidden=hidden,
        key_heads=heads,
        value_heads=heads,
        key_dim=size,
        value_dim=size,
        conv=conv,
        gate_matrices=(*low_rank, (hidden, heads), *gate),
        gate_weights=wide + heads + size,  # dt_bias per channel, A_log per head, output norm
    )


def _dense(facts: Facts, family: Family, model_type: str, hidden: int) -> DenseFfn:
    width = facts.find("intermediate_size_mlp") if model_type == "llama4" else None
    if width is None:
        width = facts.need("intermediate_size")
    return DenseFfn(hidden, width, family.gated, _bias(facts, family.mlp_bias))


def _moe(facts: Facts, family: Family, model_type: str, hidden: int) -> MoeFfn:
    experts, top_k = facts.need("experts"), facts.need("top-k")
    if top_k > experts:
        raise facts.error("num_experts_per_tok", f"is {top_k}, more than the {experts} experts there are")
    width = facts.find("expert width")
    if width is None:
        width = facts.need("intermediate_size")
        facts.note(f"experts are as wide as intermediate_size ({width}): the config states no width of their own")
    shared = facts.find("shared width", least=0)
    number = facts.find("shared experts", least=0)
    if shared is None:
        # Llama 4 puts one shared expert of the routed width into each layer and has no field for it
        shared = width * (1 if model_type == "llama4" else number or 0)
    router_bias = _bias(facts, family.router_bias)
    if model_type in ("deepseek_v3", "kimi_k2"):
        router_bias = (facts.text("topk_method") or "noaux_tc") == "noaux_tc"
    return MoeFfn(
        hidden=hidden,
        num_experts=experts,
        top_k=top_k,
        intermediate=width,
        latent=facts.find("latent width"),
        latent_norm=facts.flag("latent_moe_use_norm", False),
        gated=family.gated,
        expert_bias=family.expert_bias,
        router_bias=router_bias,
        shared_intermediate=shared,
        shared_gate=family.shared_gate and shared > 0,
    )
