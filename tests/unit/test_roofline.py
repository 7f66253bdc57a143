"""The roofline by hand on a machine with round numbers: 1 GB/s of memory, 1 GFLOP/s, so a byte and a FLOP take 1 ns."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from codesign.errors import UsageError
from codesign.sim.catalog import load_hardware, load_model
from codesign.sim.model_config import model_from_config
from codesign.sim.model_costs import model_costs
from codesign.sim.roofline import RooflinePrices

SMALL = {
    "model_type": "mixtral", "hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
    "num_hidden_layers": 3, "intermediate_size": 16, "vocab_size": 32, "num_local_experts": 4, "num_experts_per_tok": 2,
}  # fmt: skip


def model_of(**changes):
    return model_from_config({**SMALL, **changes}, name="small", source="test")


def machine(flops=1e9, bandwidth=1e9):
    base = load_hardware("b200")
    return replace(
        base,
        name="round",
        memory_bandwidth=replace(base.memory_bandwidth, value=bandwidth),
        peaks=tuple((name, replace(peak, value=flops)) for name, peak in base.peaks),
        link_bandwidth=replace(base.link_bandwidth, value=1e8),
        link_latency=replace(base.link_latency, value=5e-6),
        storage_bandwidth=replace(base.storage_bandwidth, value=1e7),
        storage_latency=replace(base.storage_latency, value=1e-4),
    )


def costs(model, tokens, contexts, heads, hardware=None, layer_ids=None, weights="bf16", **more):
    tokens = np.array(tokens, np.int64)
    return model_costs(
        model,
        RooflinePrices(hardware or machine(), "bf16"),
        weights=weights,
        layer_ids=list(model.moe_layer_ids) if layer_ids is None else layer_ids,
        tokens_P=tokens,
        context_sum_P=np.array(contexts, np.int64),
        head_rows_P=np.array(heads, np.int64),
        max_tokens=int(tokens.max()),
        **more,
    )


MEMORY_BOUND = machine(flops=1e15)
COMPUTE_BOUND = machine(bandwidth=1e18)


def product(rows, columns, tokens, width=2):
    """Bytes of one product: weights once, activations in and out, 16 bits each."""
    return 2 * rows * columns + width * tokens * (rows + columns)


def test_one_decoded_token_by_hand_where_memory_is_the_roof():
    table = costs(model_of(), [1], [10], [1], MEMORY_BOUND)
    mixer = product(8, 8 + 4 + 4, 1) + product(8, 8, 1)
    attention = ((10 + 1) * 8 + 2 * (4 + 4)) * 2  # keys and values of 10 tokens, one written; queries and output
    router = product(8, 4, 1)
    embedding = 2 * 8 * 2
    head = product(8, 32, 1)
    combine = (2 + 1) * 8 * 2
    assert table.before_ns_PC[0, 1] == mixer + attention + router
    assert table.before_ns_PC[0, 0] == embedding + mixer + attention + router
    assert table.after_ns_PC[0].tolist() == [combine, combine, combine + head]
    assert table.resident_ns_PC[0].tolist() == [0, 0, 0]
    assert table.expert_ns_CN[0].tolist() == [0, product(8, 32, 1) + product(16, 8, 1)]
    assert table.layer_class_L.tolist() == [0, 1, 2]


def test_a_prompt_by_hand_where_arithmetic_is_the_roof():
    tokens, pairs = 5, 15  # 1 + 2 + 3 + 4 + 5
    table = costs(model_of(), [tokens], [pairs], [1], COMPUTE_BOUND)
    mixer = 2 * tokens * (8 * 16 + 8 * 8)
    attention = 2 * 2 * (4 + 4) * pairs
    router = 2 * tokens * 8 * 4
    assert table.before_ns_PC[0, 1] == mixer + attention + router
    assert table.after_ns_PC[0].tolist() == [0, 0, 2 * 8 * 32]
    assert table.expert_ns_CN[0].tolist() == [0, *(2 * n * (8 * 32 + 16 * 8) for n in range(1, 6))]


def test_keys_and_values_are_read_once_a_pass_not_once_a_row():
    """A prompt of 5 reads 5 cached tokens; five sequences that decode at context 3 read 15."""
    model = model_of()
    prompt = costs(model, [5], [15], [1], MEMORY_BOUND).before_ns_PC[0, 1]
    decode = costs(model, [5], [15], [5], MEMORY_BOUND).before_ns_PC[0, 1]
    assert decode - prompt == (15 - 5) * 8 * 2


def test_a_sliding_window_limits_what_is_read_and_what_is_computed():
    narrow = model_of(sliding_window=4)
    full = costs(model_of(), [1, 1], [3, 100], [1, 1], MEMORY_BOUND).before_ns_PC[:, 1]
    slid = costs(narrow, [1, 1], [3, 100], [1, 1], MEMORY_BOUND).before_ns_PC[:, 1]
    assert slid[0] == full[0]
    assert full[1] - slid[1] == (100 - 4) * 8 * 2
    pairs = 1 + 2 + 3 + 4 + 4 + 4  # six rows from the start of a text, window 4
    prompt = costs(narrow, [6], [21], [1], COMPUTE_BOUND).before_ns_PC[0, 1]
    assert prompt == 2 * 6 * (8 * 16 + 8 * 8) + 2 * 2 * 8 * pairs + 2 * 6 * 8 * 4


def test_a_later_chunk_of_a_prompt_sees_what_came_before():
    """Rows 5 and 6 of a text: contexts 5 + 6; each row inside a window of 4 sees 4, the two together reach 5 tokens."""
    narrow = model_of(sliding_window=4)
    flops = costs(narrow, [2], [11], [1], COMPUTE_BOUND).before_ns_PC[0, 1]
    assert flops == 2 * 2 * (8 * 16 + 8 * 8) + 2 * 2 * 8 * 8 + 2 * 2 * 8 * 4
    read = costs(narrow, [2], [11], [1], MEMORY_BOUND).before_ns_PC[0, 1]
    attention = ((5 + 2) * 8 + 2 * 2 * (4 + 4)) * 2
    assert read == product(8, 16, 2) + product(8, 8, 2) + attention + product(8, 4, 2)


def test_the_longer_of_bytes_and_operations_counts():
    model, tokens = model_of(), [1, 64]
    both = costs(model, tokens, [10, 640], [1, 64])
    memory = costs(model, tokens, [10, 640], [1, 64], MEMORY_BOUND)
    compute = costs(model, tokens, [10, 640], [1, 64], COMPUTE_BOUND)
    assert both.expert_ns_CN.tolist() == np.maximum(memory.expert_ns_CN, compute.expert_ns_CN).tolist()
    assert (both.before_ns_PC >= np.maximum(memory.before_ns_PC, compute.before_ns_PC)).all()


MLA = {
    "model_type": "deepseek_v2", "hidden_size": 8, "num_attention_heads": 2, "kv_lora_rank": 6, "q_lora_rank": None,
    "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 4, "num_hidden_layers": 2, "intermediate_size": 16,
    "moe_intermediate_size": 16, "vocab_size": 32, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "n_shared_experts": 1, "first_k_dense_replace": 1,
}  # fmt: skip


def test_latent_attention_reads_the_latent_and_takes_the_cheaper_of_its_two_forms():
    model = model_from_config(MLA, name="mla", source="test")
    short, long = costs(model, [1, 1], [1, 101], [1, 1], MEMORY_BOUND).before_ns_PC[:, 0]
    assert long - short == 2 * 100 * (6 + 2) * 2  # two layers (dense, MoE), 8 elements a token
    decode = costs(model, [1, 1], [1, 101], [1, 1], COMPUTE_BOUND).before_ns_PC[:, 0]
    # one more decoded context token, on the latent: 2·heads·(2·rank + rope) = 56 FLOPs a layer, and rebuilding all
    # 100 would cost 2·heads·(nope + value + rope) + 2·rank·heads·(nope + value) = 232 each. The first token costs 40.
    assert decode[1] - decode[0] == 2 * (101 * 56 - 40)
    n = 100
    prompt = costs(model, [n], [n * (n + 1) // 2], [1], COMPUTE_BOUND).before_ns_PC[0, 0]
    weights = sum(r * c for r, c in model.layers[0].mixer.matrices)
    rebuilt = 2 * 2 * (4 + 4 + 2) * n * (n + 1) // 2
    dense = 2 * n * 3 * 8 * 16
    assert prompt == 2 * (2 * n * weights + rebuilt) + dense + 2 * n * 8 * 4


def test_shared_experts_and_dense_layers_stand_where_they_belong():
    model = model_from_config(MLA, name="mla", source="test")
    table = costs(model, [3], [6], [1], COMPUTE_BOUND)
    assert table.layer_class_L.tolist() == [0]
    assert table.resident_ns_PC[0, 0] == 2 * 3 * 3 * 8 * 16
    assert table.after_ns_PC[0, 0] == 2 * 8 * 32


def test_a_state_space_layer_costs_its_state_not_its_context():
    model = load_model("nemotron-3-nano")
    near = costs(model, [1], [10], [1], MEMORY_BOUND)
    far = costs(model, [1], [10_000], [1], MEMORY_BOUND)
    extra = far.before_ns_PC[:, far.layer_class_L].sum() - near.before_ns_PC[:, near.layer_class_L].sum()
    assert extra == (10_000 - 10) * model.kv_bytes_per_token()
    two = costs(model, [2], [20], [2], MEMORY_BOUND)
    one_state = 2 * model.state_bytes_per_sequence
    more = two.before_ns_PC[:, two.layer_class_L].sum() - near.before_ns_PC[:, near.layer_class_L].sum()
    assert more > one_state


def test_a_latent_mixture_pays_for_the_way_down_beside_and_for_the_way_up_after():
    model = load_model("nemotron-3-super")
    table = costs(model, [4], [40], [4], COMPUTE_BOUND)
    moe = model.moe
    down = 2 * 4 * moe.hidden * moe.latent
    shared = 2 * 4 * 2 * moe.hidden * moe.shared_intermediate
    assert table.resident_ns_PC[0, 0] == down + shared
    assert table.after_ns_PC[0, 0] == down  # the way up is as large
    assert table.expert_ns_CN[0, 1] == 2 * 2 * 1024 * 2688


def test_a_copy_takes_latency_and_bytes_over_bandwidth():
    table = costs(model_of(), [1], [1], [1])
    size = 3 * 8 * 16 * 2
    assert table.expert_bytes_C.tolist() == [size] * 3
    assert table.copy_ns_C[0] == 5_000 + size * 10
    assert table.storage_ns_C[0] == 100_000 + size * 100


def test_fewer_bits_make_copies_and_memory_bound_experts_shorter_but_not_the_rest():
    model = load_model("qwen3-30b-a3b")
    full = costs(model, [1], [100], [1], MEMORY_BOUND)
    small = costs(model, [1], [100], [1], MEMORY_BOUND, weights="nvfp4")
    assert small.expert_bytes_C[0] / full.expert_bytes_C[0] == 0.5625 / 2
    assert (small.copy_ns_C < full.copy_ns_C).all()
    assert small.expert_ns_CN[0, 1] < full.expert_ns_CN[0, 1]
    assert (small.before_ns_PC == full.before_ns_PC).all()
    assert (small.after_ns_PC == full.after_ns_PC).all()


def test_layers_that_cost_the_same_share_a_class():
    assert len(costs(load_model("qwen3-235b-a22b"), [1], [1], [1]).copy_ns_C) == 3  # first, middle, last
    kimi = costs(load_model("kimi-k3"), [1], [1], [1])
    assert len(kimi.copy_ns_C) == 4  # first (with the dense layer before it), delta, latent, last
    assert kimi.num_layers == 92


def test_mixtures_that_the_trace_lacks_are_charged_with_their_experts_on_the_device():
    model = model_of()
    part = costs(model, [1], [10], [1], MEMORY_BOUND, layer_ids=[0, 2])
    whole = costs(model, [1], [10], [1], MEMORY_BOUND)
    expert = whole.expert_ns_CN[0, 1]
    # one token touches exactly its two experts
    missing = whole.before_ns_PC[0, 1] + whole.after_ns_PC[0, 0] + 2 * expert
    assert part.before_ns_PC[0, 1] == whole.before_ns_PC[0, 2] + missing
    assert part.num_layers == 2


def test_provenance_lists_every_number_with_value_unit_kind_and_source():
    table = costs(load_model("gpt-oss-20b"), [1], [1], [1], load_hardware("rtx-4090"), weights="mxfp4")
    assert table.source == "roofline on assumed and datasheet numbers of rtx-4090: a floor, real kernels take longer"
    names = [row["name"] for row in table.provenance]
    assert "device memory bandwidth" in names
    assert "peak fp8 for fp4" in names
    assert "peak bf16 for bf16" in names
    assert any(str(name).startswith("host link bandwidth (PCIe 4.0") for name in names)
    assert all(set(row) == {"name", "value", "unit", "kind", "source"} and row["source"] for row in table.provenance)


def test_times_are_whole_never_negative_and_the_same_twice():
    model, hardware = load_model("kimi-k3"), load_hardware("h200-sxm")
    one, two = (costs(model, [512, 1, 3], [131_328, 513, 900], [1, 1, 3], hardware) for _ in range(2))
    for name in ("before_ns_PC", "resident_ns_PC", "after_ns_PC", "expert_ns_CN"):
        array = getattr(one, name)
        assert array.dtype == np.int64
        assert array.min() >= 0
        assert (array == getattr(two, name)).all()
    assert one.expert_ns_CN[:, 1:].min() >= 1


def test_a_hundred_thousand_passes_of_a_hybrid_cost_less_than_a_second():
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, 65, 100_000)
    start = time.perf_counter()
    costs(load_model("kimi-k3"), tokens, tokens * 2000, tokens, load_hardware("b200"))
    assert time.perf_counter() - start < 1.0


@pytest.mark.parametrize(
    ("layer_ids", "message"),
    [([1, 3], "layer 3 is no MoE layer of small"), ([], "holds no layer"), ([1, 0], "layer ids must ascend, got 0 after 1")],
)
def test_layers_that_are_not_the_models_are_refused(layer_ids, message):
    with pytest.raises(UsageError, match=message):
        costs(model_of(), [1], [1], [1], layer_ids=layer_ids)


def test_a_dense_model_and_an_unknown_format_are_refused():
    with pytest.raises(UsageError, match="is dense"):
        costs(load_model("llama-3.1-8b"), [1], [1], [1], layer_ids=[0])
    with pytest.raises(UsageError, match="unknown number format 'fp5'"):
        costs(model_of(), [1], [1], [1], weights="fp5")
