"""From `config.json` to shapes: every spelling, every rule, every refusal."""

from __future__ import annotations

import json

import pytest
from codesign.errors import InputFileError, UsageError
from codesign.sim.catalog import load_model, model_names
from codesign.sim.mixers import Attention, LatentAttention, LinearAttention, Mamba2
from codesign.sim.model_config import model_from_config, read_model_config

B13 = {
    "model_type": "qwen3", "hidden_size": 2560, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_hidden_layers": 36, "intermediate_size": 9728, "vocab_size": 151936, "tie_word_embeddings": True,
}  # fmt: skip
B15 = {
    "model_type": "mixtral", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_hidden_layers": 32, "intermediate_size": 14336, "vocab_size": 32000, "num_local_experts": 8,
    "num_experts_per_tok": 2, "tie_word_embeddings": False,
}  # fmt: skip


def made(config, **changes):
    return model_from_config({**config, **changes}, name="made", source="test", where="config.json")


def without(config, *fields):
    return {name: value for name, value in config.items() if name not in fields}


def test_a_stated_head_dim_is_used_and_said_b13():
    model = made(B13, head_dim=128)
    assert model.kv_bytes_per_token() == 147_456
    assert any("head_dim 128 is stated" in note for note in model.notes)


@pytest.mark.parametrize("change", [{}, {"head_dim": None}])
def test_an_absent_or_null_head_dim_is_hidden_over_heads_and_said_b13(change):
    model = made(B13, **change)
    assert model.kv_bytes_per_token() == 92_160
    assert any("head_dim 80 = hidden 2560 / 32 heads" in note for note in model.notes)


@pytest.mark.parametrize("config", [without(B13, "num_key_value_heads"), {**B13, "num_key_value_heads": None}])
def test_absent_or_null_kv_heads_are_as_many_as_heads_b13(config):
    assert made(config, head_dim=128).kv_bytes_per_token() == 2 * 36 * 32 * 128 * 2
    assert any("num_key_value_heads is not stated" in note for note in made(config).notes)


def test_kv_bytes_follow_the_bits_of_the_cache():
    assert made(B13, head_dim=128).kv_bytes_per_token(8) == 147_456 // 2


def test_a_mixture_counts_all_experts_and_both_embeddings_b15():
    model = made(B15)
    assert model.total_params == 46_702_792_704
    assert model.active_params == 12_879_925_248
    assert "both counted" in model.to_dict()["active_includes"]


def test_tied_embeddings_count_once_b15():
    assert made(B15, tie_word_embeddings=True).total_params == 46_571_720_704


def test_a_shared_expert_adds_to_total_and_to_active_b15():
    plain = model_from_config(
        {**B15, "model_type": "glm4_moe", "moe_intermediate_size": 14336, "n_shared_experts": 0}, name="a", source="s"
    )
    shared = model_from_config(
        {**B15, "model_type": "glm4_moe", "moe_intermediate_size": 14336, "n_shared_experts": 1}, name="a", source="s"
    )
    assert shared.total_params - plain.total_params == 32 * 176_160_768
    assert shared.active_params - plain.active_params == 32 * 176_160_768


@pytest.mark.parametrize("spelling", ["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"])
@pytest.mark.parametrize("top_k", ["num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_k"])
def test_the_same_mixture_is_read_under_every_spelling(spelling, top_k):
    config = {**without(B15, "num_local_experts", "num_experts_per_tok"), spelling: 8, top_k: 2}
    assert made(config).total_params == 46_702_792_704
    assert made(config).top_k == 2


def test_two_spellings_that_disagree_are_refused():
    with pytest.raises(InputFileError, match=r"config.json: field num_local_experts: disagrees .*num_experts': 16"):
        made(B15, num_experts=16)


def test_a_nested_text_config_is_the_language_model():
    nested = {"model_type": "llava", "text_config": B15, "vision_config": {"hidden_size": 1024, "num_hidden_layers": 24}}
    model = model_from_config(nested, name="vl", source="test")
    assert model.total_params == made(B15).total_params
    assert any("vision tower is left out" in note for note in model.notes)


def test_the_outer_tie_of_embeddings_wins_over_a_nested_default():
    nested = {"model_type": "outer", "tie_word_embeddings": True, "text_config": B15}
    assert model_from_config(nested, name="vl", source="test").tied_embeddings


def test_an_unknown_architecture_names_the_nearest_known_one():
    with pytest.raises(UsageError, match=r"unknown architecture .*'mixtrall'; did you mean 'mixtral'"):
        made(B15, model_type="mixtrall")


def test_an_unknown_model_name_names_the_nearest_known_one():
    with pytest.raises(UsageError, match=r"'mixtral-8x8b'; did you mean 'mixtral-8x7b'"):
        load_model("mixtral-8x8b")


def test_a_hugging_face_name_in_any_case_is_a_name_of_the_catalog():
    assert load_model("allenai/olmoe-1b-7b-0924").name == "olmoe-1b-7b"
    assert load_model("OLMoE-1B-7B").name == "olmoe-1b-7b"


SMALL = {
    "model_type": "qwen3_moe", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "num_hidden_layers": 6, "intermediate_size": 128, "moe_intermediate_size": 32, "vocab_size": 100,
    "num_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({}, (0, 1, 2, 3, 4, 5)),
        ({"first_k_dense_replace": 2}, (2, 3, 4, 5)),
        ({"first_k_dense_replace": 1, "moe_layer_freq": 2}, (2, 4)),
        ({"moe_layer_freq": [0, 1, 1, 0, 1, 1]}, (1, 2, 4, 5)),
        ({"decoder_sparse_step": 2}, (1, 3, 5)),
        ({"decoder_sparse_step": 1, "mlp_only_layers": [0, 5]}, (1, 2, 3, 4)),
        ({"interleave_moe_layer_step": 3}, (2, 5)),
        ({"moe_layers": [1, 4]}, (1, 4)),
        ({"mlp_layer_types": ["dense", "sparse", "sparse", "dense", "sparse", "dense"]}, (1, 2, 4)),
        ({"moe_layer_start_index": 1, "moe_layer_end_index": 4, "moe_layer_interval": 2}, (1, 3)),
        ({"moe_layer_start_index": 1, "moe_layer_end_index": -1, "moe_layer_interval": 1}, (1, 2, 3, 4, 5)),
        ({"num_experts": 0}, ()),
    ],
)
def test_which_layers_are_mixtures_follows_the_configs_rule(rule, expected):
    assert made(SMALL, **rule).moe_layer_ids == expected


def test_mixers_follow_layer_types():
    model = made(SMALL, layer_types=["sliding_attention", "full_attention"] * 3, sliding_window=8)
    assert [layer.mixer.window for layer in model.layers] == [8, None] * 3
    per_token = 2 * 2 * 16 * 2
    assert model.kv_bytes_per_token() == 6 * per_token
    assert model.kv_bytes(100) == 3 * 100 * per_token + 3 * 8 * per_token


def test_a_window_that_is_switched_off_is_no_window():
    assert {layer.mixer.window for layer in made(SMALL, sliding_window=8, use_sliding_window=False).layers} == {None}
    with_window = made(SMALL, sliding_window=8, use_sliding_window=True, max_window_layers=4)
    assert [layer.mixer.window for layer in with_window.layers] == [None] * 4 + [8] * 2


def test_the_catalog_has_a_model_with_each_mixer():
    mixers = {type(layer.mixer) for name in model_names() for layer in load_model(name).layers if layer.mixer}
    assert mixers == {Attention, LatentAttention, LinearAttention, Mamba2}


def test_a_hybrid_pattern_gives_each_layer_one_block():
    model = load_model("nemotron-3-super")
    assert len(model.layers) == 88
    assert dict(model.kinds()) == {
        "Mamba-2 128 heads of 64, state 128": 40,
        "latent MoE (width 1024) 512 experts of 2688, top-22 and shared 5376": 40,
        "attention 32 heads, 2 KV heads of 128": 8,
    }
    assert all((layer.mixer is None) != (layer.ffn is None) for layer in model.layers)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": "64"}, "field hidden_size: must be a whole number, got '64'"),
        ({"hidden_size": 64.0}, "field hidden_size: must be a whole number, got 64.0"),
        ({"hidden_size": True}, "field hidden_size: must be a whole number, got True"),
        ({"hidden_size": -1}, "field hidden_size: must be from 1 to"),
        ({"hidden_size": 10**18}, "field hidden_size: must be from 1 to"),
        ({"num_hidden_layers": 10**9}, "field num_hidden_layers: must be at most 10000, got 1000000000"),
        ({"num_hidden_layers": None}, "field num_hidden_layers: is missing"),
        ({"vocab_size": None}, "field vocab_size: is missing"),
        ({"model_type": None}, "field model_type: is missing"),
        ({"model_type": 3}, "field model_type: must be a text, got 3"),
        ({"num_experts_per_tok": 9}, "field num_experts_per_tok: is 9, more than the 8 experts"),
        ({"num_experts_per_tok": None}, "field num_experts_per_tok: is missing"),
        ({"num_key_value_heads": 3}, "field num_key_value_heads: must divide 4 heads, got 3"),
        ({"num_attention_heads": 6, "head_dim": None}, "field head_dim: is not stated, and hidden 64 does not divide by 6"),
        ({"layer_types": ["full_attention"]}, "field layer_types: must list one kind for each of 6 layers, got 1"),
        ({"layer_types": ["magic"] * 6}, r"field layer_types\[0\]: is 'magic'; known: full_attention"),
        ({"layer_types": ["sliding_attention"] * 6}, "field sliding_window: is missing, but layer_types names"),
        ({"mlp_only_layers": [6]}, "field mlp_only_layers: must hold layer numbers from 0 to 5, got 6"),
        ({"moe_layer_freq": [1, 0]}, "field moe_layer_freq: must be a step or a 0 or 1 for each of 6 layers"),
        ({"tie_word_embeddings": "no"}, "field tie_word_embeddings: must be true or false, got 'no'"),
    ],
)
def test_a_wrong_field_is_named_with_its_value(change, message):
    with pytest.raises(UsageError, match=message):
        made(SMALL, **change)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"{", "is not JSON"),
        (b"[1, 2]", "must hold one JSON object"),
        (b"\xff\xfe\x00\x01", "is not UTF-8"),
        (b"[" * 200_000, "is nested too deeply|is not JSON"),
        (b"{}", "field model_type: is missing"),
    ],
)
def test_a_broken_config_file_is_named(tmp_path, content, message):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(InputFileError, match=message) as caught:
        read_model_config(path)
    assert str(path) in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_missing_config_file_is_named(tmp_path):
    with pytest.raises(InputFileError, match="no such file"):
        load_model(tmp_path / "config.json")


def test_a_folder_and_a_file_with_a_byte_order_mark_read_the_same(tmp_path):
    folder = tmp_path / "my modèl"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(B15), encoding="utf-8-sig")
    assert load_model(folder).total_params == load_model(folder / "config.json").total_params == 46_702_792_704
    assert load_model(folder).name == "my modèl"


def test_a_dense_model_has_no_routed_experts_to_ask_about():
    dense = load_model("llama-3.1-8b")
    assert dense.num_experts == dense.top_k == 0
    assert dense.total_params == dense.active_params
    with pytest.raises(UsageError, match=r"llama-3.1-8b is dense: it has no routed experts"):
        dense.expert_bytes("bf16")


def test_bytes_are_shared_out_between_resident_and_routed():
    model = load_model("deepseek-v2-lite")
    assert model.expert_bytes("bf16") == 3 * 2048 * 1408 * 2
    assert model.weight_bytes("bf16") == 2 * model.total_params
    assert model.resident_bytes("bf16") == 2 * model.resident_params
    assert model.resident_bytes("fp8") < model.resident_bytes("bf16")
    assert load_model("gpt-oss-20b").expert_bytes("mxfp4") == 3 * 2880 * 2880 * 17 // 32 + 2 * (3 * 2880)


def test_a_latent_expert_is_as_small_as_its_latent_width():
    assert load_model("nemotron-3-super").expert_bytes("bf16") == 2 * 1024 * 2688 * 2


def test_the_summary_states_value_unit_kind_and_source_of_every_number():
    for name in model_names():
        model = load_model(name)
        for row in model.to_dict()["quantities"]:
            assert set(row) == {"name", "value", "unit", "kind", "source"}
            assert row["value"] > 0 or row["name"].startswith("KV"), (name, row)
            assert all(row[key] for key in ("unit", "kind", "source"))
        assert any("total parameters" in line and "derived" in line for line in model.summary_lines())
        json.dumps(model.to_dict())
