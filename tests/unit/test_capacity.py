"""What fits on a device beside the rest (case B14's second half)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from codesign.errors import UsageError
from codesign.sim.capacity import auto_capacity, memory_plan
from codesign.sim.catalog import load_hardware, load_model


def machine_with(num_bytes):
    base = load_hardware("h100-sxm")
    return replace(
        base,
        memory_capacity=replace(base.memory_capacity, value=float(num_bytes)),
        memory_reserved=replace(base.memory_reserved, value=0.0),
    )


def test_auto_is_what_dense_weights_shared_experts_and_the_kv_cache_leave():
    model, machine = load_model("qwen1.5-moe-a2.7b"), load_hardware("rtx-4090")
    left = 24 * 2**30 - 10**9 - 2 * model.resident_params - 2 * 4096 * model.kv_bytes_per_token()
    experts = auto_capacity(model, machine, weights="bf16", context_tokens=4096, batch=2)
    assert experts == left // (3 * 2048 * 1408 * 2)
    assert 0 < experts < 24 * 60


def test_auto_never_exceeds_all_experts():
    model = load_model("olmoe-1b-7b")
    plan = memory_plan(model, load_hardware("h200-sxm"), weights="bf16", context_tokens=4096, batch=1)
    assert plan.experts == plan.all_experts == 16 * 64
    assert plan.fits_whole
    assert plan.left_bytes > 0


def test_one_byte_less_than_the_whole_model_is_one_expert_less():
    model = load_model("olmoe-1b-7b")
    need = model.weight_bytes("bf16")
    exact = memory_plan(model, machine_with(need), weights="bf16", context_tokens=0, batch=1)
    short = memory_plan(model, machine_with(need - 1), weights="bf16", context_tokens=0, batch=1)
    assert exact.fits_whole
    assert not short.fits_whole
    assert short.experts == exact.experts - 1


def test_a_capacity_between_four_bit_payload_and_four_bit_with_scales_does_not_fit_b14():
    model = load_model("mixtral-8x7b")
    routed = 32 * 8 * 3 * 4096 * 14336
    resident = model.resident_bytes("bf16")
    payload, whole = resident + routed // 2, resident + routed * 9 // 16
    between = machine_with((payload + whole) // 2)
    assert not memory_plan(model, between, weights="nvfp4", context_tokens=0, batch=1).fits_whole
    assert memory_plan(model, machine_with(whole), weights="nvfp4", context_tokens=0, batch=1).fits_whole
    assert model.weight_bytes("nvfp4") == whole


def test_longer_contexts_and_larger_batches_leave_fewer_experts():
    model, machine = load_model("deepseek-v3"), load_hardware("h200-sxm")
    counts = [
        auto_capacity(model, machine, weights="nvfp4", context_tokens=context, batch=batch)
        for context, batch in ((0, 1), (4096, 1), (131072, 1), (131072, 4))
    ]
    assert counts == sorted(counts, reverse=True)
    assert len(set(counts)) == 4


def test_a_sliding_window_bounds_what_the_context_takes():
    model, machine = load_model("gpt-oss-20b"), load_hardware("rtx-4090")
    plan = memory_plan(model, machine, weights="mxfp4", context_tokens=100_000, batch=1)
    per_layer = 2 * 8 * 64 * 2
    assert plan.context_bytes == 12 * per_layer * (100_000 + 128)


def test_recurrent_state_is_counted_once_a_sequence_whatever_its_length():
    model, machine = load_model("nemotron-3-super"), load_hardware("h200-sxm")
    plan = memory_plan(model, machine, weights="nvfp4", context_tokens=0, batch=3)
    per_layer = 128 * 64 * 128 * 4 + (128 * 64 + 2 * 8 * 128) * 4 * 2
    assert plan.context_bytes == 3 * 40 * per_layer


def test_no_room_for_one_tokens_experts_is_an_error_that_says_what_takes_it():
    with pytest.raises(UsageError, match=r"kimi-k3 leaves no room on rtx-4090 for one token's 16 experts") as caught:
        auto_capacity(load_model("kimi-k3"), load_hardware("rtx-4090"), weights="mxfp4", context_tokens=4096, batch=1)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(("sizes", "message"), [((-1, 1), "context must be at least 0, got -1"), ((1, 0), "batch must be")])
def test_sizes_below_the_least_are_refused(sizes, message):
    with pytest.raises(UsageError, match=message):
        memory_plan(
            load_model("olmoe-1b-7b"), load_hardware("b200"), weights="q4", context_tokens=sizes[0], batch=sizes[1]
        )


def test_a_dense_model_has_no_experts_to_place():
    with pytest.raises(UsageError, match="is dense"):
        auto_capacity(load_model("llama-3.1-8b"), load_hardware("b200"), weights="q4", context_tokens=1, batch=1)
