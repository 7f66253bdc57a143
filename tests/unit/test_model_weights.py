"""Parameter counts of every architecture against Hugging Face's own classes, built without memory.

The counts in the table are those of transformers 5.24's classes for the configs beside them. Where transformers and
torch are installed they are counted anew.
"""

from __future__ import annotations

import pytest
from codesign.sim.model_config import FAMILIES, model_from_config

BASE = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4, "intermediate_size": 96, "vocab_size": 128,
        "tie_word_embeddings": False}  # fmt: skip
GQA = {**BASE, "num_key_value_heads": 2}
HEAD = {**GQA, "head_dim": 24}
MLA = {**BASE, "num_key_value_heads": 4, "kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 12,
       "qk_rope_head_dim": 8, "v_head_dim": 12, "moe_intermediate_size": 40, "n_routed_experts": 8,
       "num_experts_per_tok": 2, "n_shared_experts": 2, "first_k_dense_replace": 1}  # fmt: skip
DELTA = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 12, "linear_value_head_dim": 16,
         "linear_conv_kernel_dim": 4, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 40,
         "shared_expert_intermediate_size": 56}  # fmt: skip
LAYERS = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]

CASES = {
    "llama": {**HEAD, "attention_bias": True, "mlp_bias": True},
    "mistral": GQA,
    "mixtral": {**GQA, "num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2": GQA,
    "qwen2_moe": {**GQA, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 40,
                  "shared_expert_intermediate_size": 56, "decoder_sparse_step": 2},
    "qwen3": HEAD,
    "qwen3_moe": {**HEAD, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "mlp_only_layers": [1]},
    "qwen3_next": {**HEAD, **DELTA, "layer_types": LAYERS},
    "qwen3_5_moe_text": {**HEAD, **DELTA, "layer_types": LAYERS},
    "olmoe": {**GQA, "num_experts": 8, "num_experts_per_tok": 2},
    "deepseek_v2": {**MLA, "q_lora_rank": None},
    "deepseek_v3": {**MLA, "num_experts": None},
    "kimi_linear": {**{k: v for k, v in MLA.items() if k != "first_k_dense_replace"}, "n_shared_experts": 1,
                    "n_routed_experts": None, "num_local_experts": 8, "layer_types": LAYERS,
                    "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"], "linear_head_dim": 16,
                    "linear_num_heads": 4, "linear_conv_kernel_dim": 4},
    "gpt_oss": {**HEAD, "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 16,
                "layer_types": ["sliding_attention", "full_attention"] * 2},
    "nemotron_h": {**HEAD, "num_hidden_layers": 4, "layers_block_type": ["mamba", "moe", "attention", "mlp"],
                   "mamba_num_heads": 4, "mamba_head_dim": 8, "n_groups": 2, "ssm_state_size": 16, "conv_kernel": 4,
                   "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "moe_latent_size": 32,
                   "moe_shared_expert_intermediate_size": 56, "n_shared_experts": 1},
    "phimoe": {**GQA, "num_local_experts": 8, "num_experts_per_tok": 2, "attention_bias": True, "lm_head_bias": True},
    "minimax_m2": {**HEAD, "num_local_experts": 8, "num_experts_per_tok": 2},
    "glm4_moe": {**HEAD, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 40,
                 "n_shared_experts": 1, "first_k_dense_replace": 1, "use_qk_norm": True, "attention_bias": True},
    "granitemoe": {**GQA, "num_local_experts": 8, "num_experts_per_tok": 2},
    "ernie4_5_moe": {**GQA, "moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 40, "moe_num_shared_experts": 2,
                     "moe_layer_start_index": 1, "moe_layer_end_index": -1, "moe_layer_interval": 1},
    "llama4_text": {**HEAD, "num_local_experts": 8, "num_experts_per_tok": 1, "intermediate_size_mlp": 112,
                    "interleave_moe_layer_step": 2, "attention_chunk_size": 16},
}  # fmt: skip

COUNTS = {
    "llama": 166_464,
    "mistral": 139_840,
    "mixtral": 657_984,
    "qwen2": 140_352,
    "qwen2_moe": 249_024,
    "qwen3": 164_608,
    "qwen3_moe": 295_168,
    "qwen3_next": 381_688,
    "qwen3_5_moe_text": 381_688,
    "olmoe": 658_368,
    "deepseek_v2": 312_448,
    "deepseek_v3": 305_912,
    "kimi_linear": 318_716,
    "gpt_oss": 691_824,
    "nemotron_h": 90_708,
    "phimoe": 659_456,
    "minimax_m2": 683_168,
    "glm4_moe": 319_000,
    "granitemoe": 657_984,
    "ernie4_5_moe": 316_504,
    "llama4_text": 466_496,
}


def ours(model_type):
    return model_from_config({"model_type": model_type, **CASES[model_type]}, name=model_type, source="test").total_params


def theirs(model_type):
    """Parameters of the class, and the balancing biases that it keeps as buffers but a checkpoint holds."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    stated = {k: v for k, v in CASES[model_type].items() if v is not None or k == "q_lora_rank"}
    tokens = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}  # defaults lie outside our vocabulary
    config = transformers.AutoConfig.for_model(model_type, **stated, **tokens)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    saved = model.state_dict()
    named = dict(model.named_parameters())
    buffers = sum(t.numel() for name, t in saved.items() if name not in named and name.endswith("e_score_correction_bias"))
    return sum(p.numel() for p in model.parameters()) + buffers


@pytest.mark.parametrize("model_type", list(CASES))
def test_our_count_is_the_recorded_count_of_hugging_faces_class(model_type):
    assert ours(model_type) == COUNTS[model_type]


@pytest.mark.slow
def test_the_recorded_counts_are_still_those_of_the_installed_classes():
    pytest.importorskip("transformers")
    assert {name: theirs(name) for name in CASES} == COUNTS


def test_no_architecture_is_left_unchecked():
    checked = {name.removesuffix("_text") for name in CASES}
    aliases = {"kimi_k2": "deepseek_v3", "qwen3_vl_moe": "qwen3_moe"}
    assert checked | set(aliases) == set(FAMILIES)
    for alias, twin in aliases.items():
        assert FAMILIES[alias] == FAMILIES[twin]
