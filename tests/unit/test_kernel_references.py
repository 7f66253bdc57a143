"""The plain references themselves: against other ways to say the same, laws they must keep, and counted work."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from codesign.errors import UsageError
from codesign.kernels.reference.agreement import disagreement, has_clear_choice
from codesign.kernels.reference.block_attention import block_attention
from codesign.kernels.reference.decode_attention import decode_attention
from codesign.kernels.reference.fused_moe import fused_moe
from codesign.kernels.reference.gather_experts import gather_experts
from codesign.kernels.reference.inputs import MAKERS
from codesign.kernels.reference.latent_moe import latent_moe
from codesign.kernels.reference.mamba2_scan import mamba2_scan
from codesign.kernels.reference.tree_attention import tree_attention
from codesign.kernels.reference.work import work_of
from torch.nn.functional import scaled_dot_product_attention, silu
from torch.utils.flop_counter import FlopCounterMode

MOE = {"tokens": 7, "hidden": 12, "num_experts": 5, "top_k": 2, "width": 9}
HEADS = {"heads": 6, "kv_heads": 2, "head_dim": 8}
SCAN = {"batch": 2, "tokens": 11, "heads": 4, "head_dim": 3, "groups": 2, "state": 5, "chunk": 4}
CLOSE = {"rtol": 1e-12, "atol": 1e-12}  # both sides in float64, some tens of terms


def made(kernel: str, **sizes: Any) -> dict[str, Any]:
    return MAKERS[kernel](torch.Generator().manual_seed(3), torch.float64, **sizes)


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """torch's own attention over [tokens, heads, size], KV heads shared."""
    share = q.shape[1] // k.shape[1]
    k, v = (array.repeat_interleave(share, dim=1) for array in (k, v))
    heads_first = (array.transpose(0, 1) for array in (q, k, v))
    return scaled_dot_product_attention(*heads_first, attn_mask=mask).transpose(0, 1)


def test_a_mixture_is_each_tokens_weighted_sum_over_its_best_experts() -> None:
    inputs = made("fused_moe", **MOE)
    x, router, w_in, w_out = (inputs[name] for name in ("x_TD", "router_ND", "w_in_NID", "w_out_NDM"))
    for t, row in enumerate(x):
        weights, experts = torch.topk(torch.softmax(router @ row, 0), 2)
        expected = sum(
            weight / weights.sum() * (w_out[e] @ (silu(w_in[e, :9] @ row) * (w_in[e, 9:] @ row)))
            for weight, e in zip(weights, experts, strict=True)
        )
        torch.testing.assert_close(fused_moe(**inputs)[t], expected, **CLOSE)


def test_without_renormalising_all_experts_together_weigh_one_and_fewer_weigh_less() -> None:
    inputs = made("fused_moe", **{**MOE, "top_k": 5})
    torch.testing.assert_close(fused_moe(**inputs, renormalise=False), fused_moe(**inputs), **CLOSE)
    inputs["top_k"] = 1
    ratio = fused_moe(**inputs, renormalise=False) / fused_moe(**inputs)
    strongest = torch.softmax(inputs["x_TD"] @ inputs["router_ND"].T, 1).max(1).values
    torch.testing.assert_close(ratio, strongest[:, None].expand_as(ratio), **CLOSE)


def test_a_latent_mixture_with_identity_projections_is_the_standard_one() -> None:
    inputs = made("latent_moe", **MOE, latent=12)
    inputs["down_LD"] = inputs["up_DL"] = torch.eye(12, dtype=torch.float64)
    standard = {"w_in_NID": inputs["w_in_NIL"], "w_out_NDM": inputs["w_out_NLM"]}
    standard |= {name: inputs[name] for name in ("x_TD", "router_ND", "top_k", "activation")}
    torch.testing.assert_close(latent_moe(**inputs), fused_moe(**standard), **CLOSE)


def test_paged_attention_is_attention_over_the_pages_put_together() -> None:
    inputs = made("decode_attention", batch=3, context=23, page=4, window=9, ragged=True, **HEADS)
    for b, length in enumerate(inputs["lengths_B"].tolist()):
        k, v = (
            inputs[name][inputs["page_table_BX"][b].long()].flatten(0, 1)[:length][-9:]
            for name in ("k_pages_PGhd", "v_pages_PGhd")
        )
        expected = attend(inputs["q_BHd"][b : b + 1], k, v)[0]
        torch.testing.assert_close(decode_attention(**inputs)[b], expected, **CLOSE)


def test_a_tree_that_is_a_chain_is_causal_attention_after_the_context() -> None:
    inputs = made("tree_attention", batch=2, nodes=5, context=9, **HEADS)
    inputs["tree_mask_JJ"] = torch.ones(5, 5, dtype=torch.bool).tril()
    mask = torch.ones(5, 14, dtype=torch.bool).tril(diagonal=9)
    for b in range(2):
        k, v = (torch.cat([inputs[f"{name}_BChd"][b], inputs[f"{name}_tree_BJhd"][b]]) for name in "kv")
        torch.testing.assert_close(
            tree_attention(**inputs)[b], attend(inputs["q_BJHd"][b], k, v, mask), **CLOSE
        )


@pytest.mark.parametrize(("block", "bonus"), [(1, "causal"), (13, "full"), (4, "blocks")])
def test_blocks_of_one_are_causal_and_one_block_sees_all(block: int, bonus: str) -> None:
    inputs = made("block_attention", batch=1, tokens=13, block=block, **HEADS)
    mask = torch.ones(13, 13, dtype=torch.bool).tril()
    if bonus == "full":
        mask[:] = True
    if bonus == "blocks":
        for start in range(0, 13, 4):
            mask[start : start + 4, start : start + 4] = True
    q, k, v = (inputs[name][0] for name in ("q_BTHd", "k_BThd", "v_BThd"))
    torch.testing.assert_close(block_attention(**inputs)[0], attend(q, k, v, mask), **CLOSE)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_scan_is_one_lower_or_full_matrix_of_decays(bidirectional: bool) -> None:
    inputs = made("mamba2_scan", **SCAN, bidirectional=bidirectional)
    dt, A, x = inputs["dt_BTH"].double(), inputs["A_H"].double(), inputs["x_BTHp"]
    expected = inputs["D_H"].double()[:, None] * x
    for t in range(11):
        for s in range(11 if bidirectional else t + 1):
            between = (
                dt[:, s + 1 : t + 1] if s <= t else dt[:, t:s]
            )  # each side decays by the steps it crosses
            decay = torch.exp(between.sum(1) * A)
            score = (inputs["C_BTGn"][:, t] * inputs["B_BTGn"][:, s]).sum(-1).repeat_interleave(2, dim=1)
            expected[:, t] += (decay * score * dt[:, s])[..., None] * x[:, s]
    torch.testing.assert_close(mamba2_scan(**inputs), expected, **CLOSE)


def test_a_scan_both_ways_does_not_know_which_end_is_first() -> None:
    inputs = made("mamba2_scan", **SCAN, bidirectional=True)
    inputs["dt_BTH"] = inputs["dt_BTH"][:, :1].expand(
        -1, 11, -1
    )  # a step decays what enters it: so equal steps
    turned = inputs | {name: inputs[name].flip(1) for name in ("x_BTHp", "B_BTGn", "C_BTGn")}
    torch.testing.assert_close(mamba2_scan(**turned), mamba2_scan(**inputs).flip(1), **CLOSE)


@pytest.mark.parametrize(
    ("kernel", "sizes"),
    [
        ("fused_moe", MOE),
        ("fused_moe", {**MOE, "gated": False, "activation": "relu2"}),
        ("latent_moe", {**MOE, "latent": 6}),
        ("decode_attention", {"batch": 3, "context": 23, "page": 4, "window": 9, "ragged": True, **HEADS}),
        ("tree_attention", {"batch": 2, "nodes": 5, "context": 9, "ragged": True, **HEADS}),
    ],
)
def test_the_operation_counts_the_products_that_the_reference_does(
    kernel: str, sizes: dict[str, Any]
) -> None:
    inputs = MAKERS[kernel](torch.Generator().manual_seed(3), torch.bfloat16, **sizes)
    reference = {
        "fused_moe": fused_moe,
        "latent_moe": latent_moe,
        "decode_attention": decode_attention,
        "tree_attention": tree_attention,
    }
    with FlopCounterMode(display=False) as counter:
        reference[kernel](**inputs)
    assert work_of(kernel, inputs).flops == counter.get_total_flops()


def test_work_of_blocks_counts_whole_blocks_and_reads_keys_once() -> None:
    inputs = MAKERS["block_attention"](
        torch.Generator(), torch.bfloat16, batch=2, tokens=10, block=4, **HEADS
    )
    pairs = 4 * 4 + 4 * 8 + 2 * 10
    work = work_of("block_attention", inputs)
    assert work.flops == 2 * 2 * (8 + 8) * 6 * pairs
    assert work.bytes == 2 * sum(2 * inputs[name].numel() for name in ("q_BTHd", "k_BThd"))


def test_gathering_moves_each_wanted_byte_in_and_out() -> None:
    inputs = MAKERS["gather_experts"](torch.Generator(), torch.bfloat16, slots=4, elements=10, wanted=3)
    assert work_of("gather_experts", inputs).bytes == 2 * 3 * 10 * 2
    with pytest.raises(UsageError, match=r"slots \[1, 4\] are not all in 0 … 3"):
        gather_experts(inputs["cache_SE"], torch.tensor([1, 4]))


def test_work_of_an_unknown_kernel_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'fused_moe'"):
        work_of("fuse_moe", {})


def test_a_missing_value_or_another_shape_never_agrees() -> None:
    right = torch.ones(3, 4)
    broken = right.clone()
    broken[1, 2] = torch.nan
    assert disagreement(right, right) == 0
    assert (
        disagreement(broken, right)
        == disagreement(right[:2], right)
        == disagreement(right.half(), right)
        == float("inf")
    )
    assert disagreement(right.bfloat16() * (1 + 2**-7), right.bfloat16()) == pytest.approx(
        1.0
    )  # one step, |1| + rms 1


def test_near_ties_of_the_router_are_no_clear_choice() -> None:
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    router = torch.tensor([[1.0, 0.0], [0.5, 1.0], [0.1, 1.0 - 1e-6]])
    assert has_clear_choice(x, router, 1).tolist() == [True, False]
    assert has_clear_choice(x, router, 3).all()


@pytest.mark.parametrize(
    ("kernel", "change", "message"),
    [
        (
            fused_moe,
            {"w_out_NDM": torch.ones(5, 11, 9)},
            r"w_out has shape \[5, 11, 9\], expected \[5, 12, M\]",
        ),
        (fused_moe, {"w_in_NID": torch.ones(5, 10, 12)}, r"expected \[5, 9 or \(gated\) 18, 12\]"),
        (latent_moe, {"up_DL": torch.ones(6, 12)}, r"up_DL has shape \[6, 12\], expected \[12, 6\]"),
        (block_attention, {"block": 0}, "block must be at least 1 token, got 0"),
        (block_attention, {"q_BTHd": torch.ones(1, 13, 5, 8)}, "5 query heads cannot share 2 KV heads"),
        (decode_attention, {"window": 0}, "window must be at least 1 token, got 0"),
        (tree_attention, {"tree_mask_JJ": torch.ones(5, 5)}, r"expected \[5, 5\], boolean"),
        (mamba2_scan, {"chunk": 0}, "chunk must be at least 1 token, got 0"),
        (mamba2_scan, {"D_H": torch.ones(3)}, r"D_H has shape \[3\], expected \[4\]"),
    ],
)
def test_what_does_not_fit_is_named_with_what_would(
    kernel: Any, change: dict[str, Any], message: str
) -> None:
    sizes: dict[str, dict[str, Any]] = {
        "fused_moe": MOE, "latent_moe": {**MOE, "latent": 6}, "mamba2_scan": {**SCAN, "bidirectional": True},
        "block_attention": {"batch": 1, "tokens": 13, "block": 4, **HEADS},
        "decode_attention": {"batch": 2, "context": 9, **HEADS}, "tree_attention": {"batch": 1, "nodes": 5, "context": 9, **HEADS},
    }  # fmt: skip
    with pytest.raises(UsageError, match=message):
        kernel(**made(kernel.__name__, **sizes[kernel.__name__]) | change)
