"""FLOPs and bytes of operations: against loops over every element, and against cases worked by hand."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from codesign.errors import UsageError
from codesign.sim.ops import (
    OPERATIONS,
    AllToAll,
    Collective,
    DecodeAttention,
    Gemm,
    GroupedGemm,
    MoeLayer,
    PrefillAttention,
    operation_entry,
)
from codesign.sim.ops.loads import expected_loads, power_law_loads


def test_a_matrix_product_of_8192_cubed_has_the_published_count() -> None:
    """Case B17: 1.0995e12 FLOP, 1.112 ms at 989 TFLOP/s dense."""
    one = Gemm(8192, 8192, 8192)
    assert one.flops == 2 * 8192**3
    assert one.flops / 989e12 == pytest.approx(1.112e-3, rel=1e-3)
    assert one.bytes == 3 * 8192 * 8192 * 2


def test_scales_of_block_formats_count_as_bytes() -> None:
    """Case B14: 4096 × 14336 weights in nvfp4 are 33,030,144 bytes."""
    none_moved = Gemm(0, 4096, 14336, weights="nvfp4")
    assert none_moved.bytes == 33_030_144


@pytest.mark.parametrize(
    ("new", "prefix", "window"), [(1, 0, None), (7, 0, None), (7, 5, None), (9, 0, 4), (9, 6, 4), (3, 9, 20)]
)
def test_attended_pairs_are_those_that_a_loop_over_all_tokens_finds(
    new: int, prefix: int, window: int | None
) -> None:
    pairs = sum(min(prefix + i, window or 10**9) for i in range(1, new + 1))
    one = PrefillAttention(3, new, 8, 2, 16, 12, window=window, prefix=prefix)
    assert one.flops == 2 * 3 * 8 * (16 + 12) * pairs


def test_decoding_one_token_is_a_prompt_of_one_token_after_its_context() -> None:
    decode = DecodeAttention(4, 100, 8, 2, 16, window=30)
    prompt = PrefillAttention(4, 1, 8, 2, 16, window=30, prefix=99)
    assert decode.flops == prompt.flops
    assert decode.bytes == prompt.bytes


def test_latent_attention_reads_its_shared_row_once() -> None:
    one = DecodeAttention.mla(1, 1000, 128, 512, 64)
    queries = 128 * (512 + 64 + 512) * 2
    assert one.bytes == 1000 * (512 + 64) * 2 + queries
    assert one.flops == 2 * 128 * (512 + 64 + 512) * 1000


def test_a_latent_mixture_counts_as_its_formulas_say() -> None:
    """Nemotron-3 Super: d 4096, ℓ 1024, N 512, K 22, m 2688, shared 5376, squared ReLU (two matrices)."""
    T = 16
    one = MoeLayer(T, 4096, 2688, 512, 22, latent=1024, gated=False, shared_width=5376)
    routed = 2 * 2 * T * 22 * 1024 * 2688
    around = 2 * T * 4096 * 512 + 2 * 2 * T * 4096 * 1024 + 2 * 2 * T * 4096 * 5376
    assert one.flops == routed + around
    touched = 512 * (1 - (1 - 22 / 512) ** T)
    assert one.routed.weight_bytes == np.ceil(touched * 2 * 1024 * 2688 * 2)


def test_a_latent_width_equal_to_the_models_only_adds_its_projections() -> None:
    standard = MoeLayer(4, 64, 32, 8, 2)
    latent = MoeLayer(4, 64, 32, 8, 2, latent=64)
    assert latent.flops - standard.flops == 4 * 4 * 64 * 64


def test_expected_touched_experts_match_a_simulation_of_uniform_routing() -> None:
    rng = np.random.default_rng(0)
    drawn = [
        len(np.unique(np.concatenate([rng.choice(32, 4, replace=False) for _ in range(6)])))
        for _ in range(3000)
    ]
    expected = expected_loads(6, 32, 4, 1, "uniform")[0]
    assert float(expected) == pytest.approx(np.mean(drawn), abs=4 * np.std(drawn) / np.sqrt(len(drawn)))


def test_skewed_loads_keep_the_sum_and_touch_fewer_experts() -> None:
    loads = power_law_loads(256, 64, 8, 1.2)
    assert loads.sum() == pytest.approx(256 * 8, rel=1e-3)
    assert loads.max() <= 256
    assert expected_loads(64, 64, 8, 1, "power_law_1.2")[0] < expected_loads(64, 64, 8, 1, "balanced")[0]


def test_an_unknown_load_distribution_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="zipf"):
        _ = GroupedGemm(1, 64, 32, 8, 2, distribution="zipf").bytes


def test_dispatch_moves_activations_whatever_the_weights_are() -> None:
    """Case B16: 1024 × 8 × 7168 × 2 bytes; 7/8 of it leaves one of 8 ranks."""
    one = AllToAll(1024, 7168, 8, 256, 8)
    assert one.payload_bytes == 117_440_512
    assert one.bytes == 102_760_448
    assert AllToAll(1024, 7168, 8, 256, 8, activations="fp8").bytes == 102_760_448 / 2
    assert "weights" not in {field.name for field in fields(AllToAll)}


def test_one_copy_per_rank_never_exceeds_one_per_expert() -> None:
    plain, once = (AllToAll(64, 128, 8, 256, 4, deduplicate=d).payload_bytes for d in (False, True))
    assert once == np.ceil(64 * 4 * (1 - 0.75**8) * 128 * 2)
    assert once < plain


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather() -> None:
    parts = [Collective(kind, 1 << 20, 8).bytes for kind in ("reduce_scatter", "all_gather")]
    assert Collective("all_reduce", 1 << 20, 8).bytes == sum(parts)


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_a_table_of_shapes_counts_as_its_rows_one_by_one(name: str) -> None:
    """The same formula serves one shape and a column of them."""
    operation = operation_entry(name).operation
    needed = [f for f in fields(operation) if str(f.type) in ("Size", "float", "Kind")]
    rng = np.random.default_rng(1)
    table = {
        f.name: rng.integers(2, 9, 5) * 8
        for f in needed
        if str(f.type) == "Size" and f.name not in ("tp", "ep")
    }
    if "top_k" in table:
        table["top_k"], table["num_experts"] = (
            rng.integers(1, 4, 5),
            table.get("num_experts", np.zeros(5, int)) + 64,
        )
    fixed = {f.name: {"ratio": 0.5, "kind": "all_reduce"}[f.name] for f in needed if str(f.type) != "Size"}
    if name == "router_top_k":
        table["num_experts"] = rng.integers(8, 64, 5)
    whole = operation(**table, **fixed)
    for row in range(5):
        one = operation(**{key: int(value[row]) for key, value in table.items()}, **fixed)
        assert isinstance(one.flops, float)
        assert one.flops == pytest.approx(np.asarray(whole.flops)[row])
        assert one.bytes == pytest.approx(np.asarray(whole.bytes)[row])
        assert one.bytes > 0


def test_an_unknown_operation_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="did you mean 'gemm'"):
        operation_entry("gem")
