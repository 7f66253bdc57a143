"""A `config.json` as facts: the same thing under every spelling, checked where it is read.

Names the file and the field in each error, and remembers in `notes` how an open choice was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from ..errors import InputFileError, UsageError

LARGEST = 2**40
"""No size in a model comes near it; a larger one is a broken or hostile file."""

SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layers", "num_layers", "n_layer"),
    "hidden": ("hidden_size", "d_model", "n_embd"),
    "vocab": ("vocab_size",),
    "heads": ("num_attention_heads", "n_heads", "n_head"),
    "kv heads": ("num_key_value_heads", "num_kv_heads", "n_kv_heads"),
    "experts": (
        "num_local_experts", "num_experts", "n_routed_experts", "num_routed_experts", "moe_num_experts",
        "num_moe_experts",
    ),
    "top-k": (
        "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_top_k", "moe_topk", "moe_k",
        "top_k_experts",
    ),
    "expert width": ("moe_intermediate_size", "expert_intermediate_size", "moe_ffn_hidden_size"),
    "shared experts": ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"),
    "shared width": ("moe_shared_expert_intermediate_size", "shared_expert_intermediate_size", "share_expert_dim"),
    "latent width": ("moe_latent_size", "routed_expert_hidden_size"),
}  # fmt: skip
"""What we call it → what configs call it."""

_NESTED = ("text_config", "llm_config", "language_config", "thinker_config")


def language_part(config: Mapping[str, object]) -> dict[str, object]:
    """The language model's own fields of a config, however deep they are nested; outer fields fill the gaps.

    The inner `tie_word_embeddings` is often a default that nobody set, so an outer one decides.
    """
    for key in _NESTED:
        inner = config.get(key)
        if isinstance(inner, dict):
            merged = {**config, **language_part(inner)}
            if isinstance(config.get("tie_word_embeddings"), bool):
                merged["tie_word_embeddings"] = config["tie_word_embeddings"]
            merged.pop(key, None)
            return merged
    return dict(config)


class Facts:
    """Checked access to the fields of one config."""

    def __init__(self, fields: Mapping[str, object], where: str) -> None:
        self._fields = fields
        self._where = where
        self.notes: list[str] = []

    def error(self, field: str, what: str) -> UsageError:
        return InputFileError(self._where, what, f"field {field}")

    def note(self, text: str) -> None:
        self.notes.append(text)

    def has(self, name: str) -> bool:
        """Present and not null."""
        return self._fields.get(name) is not None

    def raw(self, name: str) -> object:
        return self._fields.get(name)

    def _integer(self, name: str, least: int) -> int | None:
        value = self._fields.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(name, f"must be a whole number, got {value!r}")
        if not least <= value <= LARGEST:
            raise self.error(name, f"must be from {least} to {LARGEST}, got {value}")
        return value

    def find(self, meaning: str, least: int = 1) -> int | None:
        """The number under any of its spellings, None where no spelling is present.

        Raises `UsageError` where two spellings disagree.
        """
        found: dict[str, int] = {}
        for name in SPELLINGS.get(meaning, (meaning,)):
            value = self._integer(name, least)
            if value is not None:
                found[name] = value
        if len(set(found.values())) > 1:
            raise self.error(next(iter(found)), f"disagrees with another spelling of {meaning}: {found}")
        return next(iter(found.values()), None)

    def need(self, meaning: str, least: int = 1) -> int:
        """As `find`, but the number must be there."""
        value = self.find(meaning, least)
        if value is None:
            names = SPELLINGS.get(meaning, (meaning,))
            raise self.error(names[0], f"is missing; no {meaning} under any spelling ({', '.join(names)})")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._fields.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(name, f"must be true or false, got {value!r}")
        return value

    def text(self, name: str) -> str | None:
        value = self._fields.get(name)
        if value is not None and not isinstance(value, str):
            raise self.error(name, f"must be a text, got {value!r}")
        return value

    def table(self, name: str) -> Facts:
        """The fields of a nested table; an absent one is empty."""
        value = self._fields.get(name)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self.error(name, f"must be a table, got {value!r}")
        nested = Facts(cast("dict[str, object]", value), self._where)
        nested.notes = self.notes
        return nested

    def integers(self, name: str, below: int, first: int = 0) -> list[int] | None:
        """A list of layer numbers from `first` to less than `below`."""
        value = self._fields.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.error(name, f"must be a list of layer numbers, got {value!r}")
        for item in value:
            if isinstance(item, bool) or not isinstance(item, int) or not first <= item < below:
                raise self.error(name, f"must hold layer numbers from {first} to {below - 1}, got {item!r}")
        return cast("list[int]", value)

    def words(self, name: str, count: int, allowed: Mapping[str, str]) -> list[str] | None:
        """A list of one word per layer, translated by `allowed`."""
        value = self._fields.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != count:
            got = f"{len(value)} entries" if isinstance(value, list) else repr(value)
            raise self.error(name, f"must list one kind for each of {count} layers, got {got}")
        for index, word in enumerate(value):
            if word not in allowed:
                raise self.error(f"{name}[{index}]", f"is {word!r}; known: {', '.join(allowed)}")
        return [allowed[word] for word in value]


def head_dim(facts: Facts, hidden: int, heads: int) -> int:
    """The stated `head_dim`, or hidden / heads where the config states none (absent or null); case B13.

    Which of the two was used is noted: guessing where 128 is stated makes a KV cache 1.6 times too small.
    """
    stated = facts.find("head_dim")
    if stated is not None:
        facts.note(f"head_dim {stated} is stated by the config")
        return stated
    if hidden % heads:
        raise facts.error("head_dim", f"is not stated, and hidden {hidden} does not divide by {heads} heads")
    facts.note(f"head_dim {hidden // heads} = hidden {hidden} / {heads} heads: the config states none")
    return hidden // heads


def moe_layer_flags(facts: Facts, layers: int) -> list[bool]:
    """Which layers are mixtures of experts, by every rule that the config states; all rules must agree.

    Rules: `mlp_layer_types`, `moe_layers`, `first_k_dense_replace`, `moe_layer_freq` (a step or a list),
    `decoder_sparse_step` with `mlp_only_layers` (Qwen), `interleave_moe_layer_step` (Llama 4),
    `moe_layer_start_index`, `…_end_index`, `…_interval` (ERNIE).
    """
    if not facts.find("experts", least=0):
        return [False] * layers
    kinds = facts.words("mlp_layer_types", layers, {"sparse": "moe", "moe": "moe", "dense": "dense"})
    if kinds is not None:
        return [kind == "moe" for kind in kinds]
    listed = facts.integers("moe_layers", layers)
    if listed:
        return [layer in set(listed) for layer in range(layers)]
    flags = [True] * layers

    def keep(rule: list[bool]) -> None:
        flags[:] = [a and b for a, b in zip(flags, rule, strict=True)]

    first = facts.find("first_k_dense_replace", least=0)
    if first is not None:
        keep([layer >= first for layer in range(layers)])
    frequency = facts.raw("moe_layer_freq")
    if isinstance(frequency, list):
        if len(frequency) != layers or not set(frequency) <= {0, 1}:
            raise facts.error("moe_layer_freq", f"must be a step or a 0 or 1 for each of {layers} layers")
        keep([bool(one) for one in frequency])
    elif frequency is not None:
        step = facts.need("moe_layer_freq")
        keep([layer % step == 0 for layer in range(layers)])
    for name in ("decoder_sparse_step", "interleave_moe_layer_step"):
        every = facts.find(name)
        if every is not None:
            keep([(layer + 1) % every == 0 for layer in range(layers)])
    dense = set(facts.integers("mlp_only_layers", layers) or ())
    keep([layer not in dense for layer in range(layers)])
    keep(_ernie_range(facts, layers))
    return flags


def _ernie_range(facts: Facts, layers: int) -> list[bool]:
    start = facts.find("moe_layer_start_index", least=0) or 0
    end = facts.find("moe_layer_end_index", least=-1)
    last = layers - 1 if end is None or end == -1 else end
    every = facts.find("moe_layer_interval") or 1
    return [start <= layer <= last and (layer + 1) % every == 0 for layer in range(layers)]
