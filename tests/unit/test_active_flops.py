"""What a token costs in arithmetic, worked out by hand; and designs of the same cost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from codesign.errors import UsageError
from codesign.sim.active_flops import active_flops, matched_width, with_expert_width
from codesign.sim.ffn import DenseFfn, MoeFfn
from codesign.sim.mixers import Attention, LatentAttention, Mamba2
from codesign.sim.model import Layer, ModelSpec
from codesign.sim.small_designs import latent_of, small_moe

BASE = small_moe()


def one_layer(mixer: object, ffn: object) -> ModelSpec:
    return ModelSpec("one", "test", "test", 64, 100, (Layer(mixer, ffn, 128),), 64, False)  # type: ignore[arg-type]


def test_operations_of_a_latent_mixture_by_hand() -> None:
    moe = MoeFfn(64, 8, 4, 24, latent=16, latent_norm=True, shared_intermediate=40, shared_gate=True)
    attention = Attention(64, 4, 2, 16, 16)
    qkv_out = 64 * (64 + 32 + 32) + 64 * 64
    router, projections = 64 * 8, 2 * 64 * 16
    routed, shared = 4 * 3 * 16 * 24, 3 * 64 * 40 + 64
    by_hand = 2 * (qkv_out + router + projections + routed + shared + 64 * 100)
    found = active_flops(one_layer(attention, moe), context=3)
    assert found.weights == by_hand
    # tokens see 1, 2 and 3 tokens: scores and weighted sums are 2·16 each, in each of 4 heads
    assert found.mixing == pytest.approx(2 * 4 * (16 + 16) * (1 + 2 + 3) / 3)
    assert found.total == found.weights + found.mixing


def test_without_a_context_the_mixing_of_tokens_is_absent() -> None:
    assert active_flops(BASE).mixing is None
    assert active_flops(BASE).total == active_flops(BASE).weights


def test_tied_embeddings_cost_the_same_arithmetic() -> None:
    assert active_flops(replace(BASE, tied_embeddings=True)) == active_flops(BASE)


def test_a_window_bounds_what_attention_costs() -> None:
    far, near = (
        active_flops(one_layer(Attention(64, 4, 2, 16, 16, window), DenseFfn(64, 96)), context=64)
        for window in (None, 8)
    )
    assert near.weights == far.weights
    assert near.mixing is not None
    assert far.mixing is not None
    assert near.mixing < far.mixing


def test_other_mixers_are_counted_too() -> None:
    for mixer in (LatentAttention(64, 4, None, 32, 16, 8, 16), Mamba2(64, 8, 16, 1, 16, 4)):
        found = active_flops(one_layer(mixer, DenseFfn(64, 96)), context=16)
        assert found.mixing is not None
        assert found.mixing > 0


@pytest.mark.parametrize("compression", [2, 4, 8])
@pytest.mark.parametrize("gated", [True, False])
def test_latent_designs_cost_what_the_base_costs(compression: int, gated: bool) -> None:
    base = small_moe(gated=gated)
    design = latent_of(base, compression)
    assert active_flops(design).weights == pytest.approx(active_flops(base).weights, rel=0.02)
    assert design.moe.latent == 128 // compression
    assert (design.num_experts, design.top_k) == (16 * compression, 2 * compression)


def test_without_scaled_top_k_the_experts_get_what_is_left() -> None:
    design = latent_of(BASE, 4, scale_top_k=False)
    assert design.top_k == BASE.top_k
    assert design.moe.intermediate > 3 * BASE.moe.intermediate
    assert active_flops(design).weights == pytest.approx(active_flops(BASE).weights, rel=0.02)


def test_the_base_matches_itself_whatever_width_it_states() -> None:
    assert matched_width(BASE, BASE) == 128
    assert matched_width(BASE, with_expert_width(BASE, 8)) == 128


def test_a_width_that_misses_the_cost_is_refused_with_the_gap() -> None:
    with pytest.raises(UsageError, match=r"within 2%: 64 gives -\d+\.\d%, 128 gives \+\d+\.\d%"):
        matched_width(with_expert_width(BASE, 96), BASE, multiple=64)


def test_a_router_that_costs_more_than_the_base_is_refused() -> None:
    with pytest.raises(UsageError, match="router, projections and mixers alone are too much"):
        matched_width(BASE, small_moe("many", num_experts=4096))


def test_a_dense_design_has_no_width_to_match() -> None:
    dense = one_layer(Attention(64, 4, 2, 16, 16), DenseFfn(64, 96))
    with pytest.raises(UsageError, match="is dense"):
        matched_width(BASE, dense)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: small_moe(hidden=100, heads=3), "even multiple of heads 3"),
        (lambda: small_moe(top_k=17), "from 1 to the 16 experts"),
        (lambda: latent_of(BASE, 3), "divisor of hidden 128"),
        (lambda: latent_of(latent_of(BASE, 2), 2), "latent already"),
        (lambda: active_flops(BASE, 0), "at least 1 token"),
        (lambda: matched_width(BASE, BASE, multiple=0), "multiple must be at least 1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(make: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()  # type: ignore[operator]
