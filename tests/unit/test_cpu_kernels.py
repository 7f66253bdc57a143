"""Every processor kernel against its slow and obvious twin: odd sizes, fp32 and bf16, tolerance from the format."""

from __future__ import annotations

import pytest
from codesign.errors import UsageError

torch = pytest.importorskip("torch")

from codesign.kernels.cpu.block_attention import block_attention  # noqa: E402
from codesign.kernels.cpu.decode_attention import decode_attention  # noqa: E402
from codesign.kernels.cpu.fused_moe import fused_moe  # noqa: E402
from codesign.kernels.cpu.gather_experts import gather_experts  # noqa: E402
from codesign.kernels.cpu.gemm import gemm  # noqa: E402
from codesign.kernels.cpu.latent_moe import latent_moe  # noqa: E402
from codesign.kernels.cpu.mamba2_scan import mamba2_scan  # noqa: E402
from codesign.kernels.cpu.norm import norm  # noqa: E402
from codesign.kernels.cpu.prefill_attention import prefill_attention  # noqa: E402
from codesign.kernels.cpu.router_top_k import by_expert, router_top_k  # noqa: E402
from codesign.kernels.cpu.sampling import sampling  # noqa: E402
from codesign.kernels.cpu.tree_attention import tree_attention  # noqa: E402
from codesign.kernels.reference.block_attention import block_attention as slow_block_attention  # noqa: E402
from codesign.kernels.reference.decode_attention import decode_attention as slow_decode_attention  # noqa: E402
from codesign.kernels.reference.fused_moe import fused_moe as slow_fused_moe  # noqa: E402
from codesign.kernels.reference.gather_experts import gather_experts as slow_gather_experts  # noqa: E402
from codesign.kernels.reference.latent_moe import latent_moe as slow_latent_moe  # noqa: E402
from codesign.kernels.reference.mamba2_scan import mamba2_scan as slow_mamba2_scan  # noqa: E402
from codesign.kernels.reference.tree_attention import tree_attention as slow_tree_attention  # noqa: E402

FORMATS = [torch.float32, torch.bfloat16]
# relative to the largest value: a sum of some hundred products in fp32, or a few roundings to 8 bits of mantissa
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 3e-2}


def normal(*shape, dtype=torch.float32, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return (torch.randn(*shape, generator=generator) * scale).to(dtype)


def assert_close(fast, slow):
    assert fast.dtype == slow.dtype
    assert fast.shape == slow.shape
    assert torch.isfinite(fast.double()).all()
    error = (fast.double() - slow.double()).abs().max()
    assert error <= TOLERANCE[slow.dtype] * slow.double().abs().max().clamp(min=1e-6)


def moe_arrays(tokens, hidden, width, num_experts, gated, dtype, wide=None):
    wide = wide or hidden
    return (
        normal(tokens, hidden, dtype=dtype),
        normal(num_experts, hidden, dtype=dtype, seed=1, scale=2 * hidden**-0.5),
        normal(num_experts, width * (2 if gated else 1), wide, dtype=dtype, seed=2, scale=wide**-0.5),
        normal(num_experts, wide, width, dtype=dtype, seed=3, scale=width**-0.5),
    )


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("tokens", [1, 3, 17, 70])
def test_a_mixture_is_the_weighted_sum_of_its_experts(dtype, gated, tokens):
    """70 tokens of 9 experts top-3 take both ways: some experts have few tokens, others many."""
    arrays = moe_arrays(tokens, 37, 23, 9, gated, dtype)
    settings = {"top_k": 3, "activation": "silu" if gated else "relu2", "renormalise": tokens != 17}
    assert_close(fused_moe(*arrays, **settings), slow_fused_moe(*arrays, **settings))


def test_a_mixture_of_no_tokens_is_empty():
    assert fused_moe(*moe_arrays(0, 8, 4, 4, True, torch.float32), top_k=2, activation="silu").shape == (0, 8)


def test_experts_that_no_token_uses_are_not_read():
    x, router, w_in, w_out = moe_arrays(5, 16, 8, 6, True, torch.float32)
    y = fused_moe(x, router, w_in, w_out, top_k=2, activation="silu")
    _, used = router_top_k(x @ router.T, top_k=2)
    idle = [expert for expert in range(6) if expert not in set(used.flatten().tolist())]
    w_in[idle], w_out[idle] = torch.nan, torch.nan
    assert torch.equal(fused_moe(x, router, w_in, w_out, top_k=2, activation="silu"), y)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("tokens", [1, 6, 90])
def test_a_latent_mixture_works_in_the_narrow_width(dtype, tokens):
    x, router, w_in, w_out = moe_arrays(tokens, 41, 19, 7, False, dtype, wide=13)
    down, up = (
        normal(13, 41, dtype=dtype, scale=41**-0.5),
        normal(41, 13, dtype=dtype, seed=5, scale=13**-0.5),
    )
    settings = {"top_k": 3, "activation": "relu2"}
    assert_close(
        latent_moe(x, router, down, w_in, w_out, up, **settings),
        slow_latent_moe(x, router, down, w_in, w_out, up, **settings),
    )


def test_equal_scores_go_to_the_lower_expert():
    weights, experts = router_top_k(torch.zeros(2, 5), top_k=3)
    assert experts.tolist() == [[0, 1, 2]] * 2
    assert torch.allclose(weights, torch.full((2, 3), 1 / 3))


@pytest.mark.parametrize("renormalise", [True, False])
def test_the_router_takes_the_largest_probabilities(renormalise):
    logits = normal(33, 50) * 3
    weights, experts = router_top_k(logits, top_k=7, renormalise=renormalise)
    probabilities = torch.softmax(logits.double(), -1)
    right, ids = torch.topk(probabilities, 7)
    if renormalise:
        right = right / right.sum(-1, keepdim=True)
    assert torch.equal(experts, ids)
    assert torch.allclose(weights.double(), right, atol=1e-6)


def test_sorting_by_expert_keeps_every_pair_once():
    weights, experts = router_top_k(normal(20, 6), top_k=3)
    order = by_expert(weights, experts, 6)
    pairs = [
        (expert, order.tokens_P[p], order.weights_P[p])
        for expert, start, end in zip(order.experts_S, order.starts_S, order.ends_S, strict=True)
        for p in range(start, end)
    ]
    wanted = sorted((int(experts[t, k]), t, float(weights[t, k])) for t in range(20) for k in range(3))
    assert [(int(e), int(t), float(w)) for e, t, w in pairs] == wanted


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("rows", [1, 2, 5, 9, 30])
def test_a_product_is_exact_to_its_format(dtype, rows):
    x, w = normal(rows, 53, dtype=dtype), normal(31, 53, dtype=dtype)
    assert_close(gemm(x, w), (x.double() @ w.double().T).to(dtype))


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("window", [None, 1, 5, 40])
def test_decoding_reads_each_sequence_through_its_pages(dtype, window):
    lengths = torch.tensor([1, 17, 0, 33, 700])
    pages, page = 200, 4
    table = torch.randperm(pages, generator=torch.Generator().manual_seed(0))[None, :].repeat(5, 1)[:, :175]
    table = torch.stack([row.roll(3 * b) for b, row in enumerate(table)])
    q = normal(5, 6, 24, dtype=dtype)
    k, v = normal(pages, page, 2, 24, dtype=dtype), normal(pages, page, 2, 24, dtype=dtype, seed=1)
    assert_close(
        decode_attention(q, k, v, table, lengths, window=window),
        slow_decode_attention(q, k, v, table, lengths, window=window),
    )


def test_large_scores_do_not_overflow():
    q = torch.full((1, 1, 8), 100.0)
    k = torch.linspace(-50, 50, 600 * 8).reshape(150, 4, 1, 8)
    v = normal(150, 4, 1, 8)
    table, lengths = torch.arange(150)[None], torch.tensor([600])
    assert_close(decode_attention(q, k, v, table, lengths), slow_decode_attention(q, k, v, table, lengths))


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("window", [None, 1, 4, 7, 100])
def test_a_prompt_is_attended_causally_and_within_its_window(dtype, window):
    q = normal(2, 23, 6, 16, dtype=dtype)
    k, v = normal(2, 23, 2, 16, dtype=dtype, seed=1), normal(2, 23, 2, 16, dtype=dtype, seed=2)
    fast = prefill_attention(q, k, v, window=window)
    for t in range(23):  # token t decodes over a cache of the tokens up to it
        lengths, table = torch.full((2,), t + 1), torch.arange(2)[:, None]
        assert_close(fast[:, t], slow_decode_attention(q[:, t], k, v, table, lengths, window=window))


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("block", [1, 4, 50])
def test_a_block_sees_itself_and_the_blocks_before_it(dtype, block):
    q = normal(2, 13, 4, 8, dtype=dtype)
    k, v = normal(2, 13, 2, 8, dtype=dtype, seed=1), normal(2, 13, 2, 8, dtype=dtype, seed=2)
    assert_close(block_attention(q, k, v, block=block), slow_block_attention(q, k, v, block=block))


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_draft_sees_its_context_and_its_ancestors(dtype):
    parents = [-1, 0, 0, 1, 2]
    mask = torch.eye(5, dtype=torch.bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            mask[node] |= mask[parent]
    arrays = (
        normal(3, 5, 4, 8, dtype=dtype), normal(3, 11, 2, 8, dtype=dtype), normal(3, 11, 2, 8, dtype=dtype, seed=1),
        torch.tensor([11, 0, 4]), mask, normal(3, 5, 2, 8, dtype=dtype, seed=2), normal(3, 5, 2, 8, dtype=dtype, seed=3),
    )  # fmt: skip
    assert_close(tree_attention(*arrays), slow_tree_attention(*arrays))


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("chunk", [1, 4, 16, 64])
def test_a_scan_in_chunks_is_the_scan_token_by_token(dtype, bidirectional, chunk):
    batch, tokens, heads, size, groups, state = 2, 37, 4, 5, 2, 6
    arrays = (
        normal(batch, tokens, heads, size, dtype=dtype),
        normal(batch, tokens, heads).abs().to(dtype),
        -normal(heads, seed=3).abs(),
        normal(batch, tokens, groups, state, dtype=dtype, seed=1),
        normal(batch, tokens, groups, state, dtype=dtype, seed=2),
        normal(heads, seed=4),
    )
    settings = {"chunk": chunk, "bidirectional": bidirectional}
    assert_close(mamba2_scan(*arrays, **settings), slow_mamba2_scan(*arrays, **settings))


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_norm_makes_rows_of_mean_square_one(dtype):
    x = normal(9, 64, dtype=dtype, scale=5.0)
    y = norm(x, torch.ones(64, dtype=dtype)).double()
    assert torch.allclose((y**2).mean(-1), torch.ones(9, dtype=torch.double), atol=TOLERANCE[dtype])


def test_a_norm_adds_into_the_residual():
    x, residual = normal(3, 8), normal(3, 8, seed=1)
    total = x + residual
    y = norm(x, normal(8, seed=2), residual)
    assert torch.equal(residual, total)
    assert torch.allclose(y, total / (total**2).mean(-1, keepdim=True).sqrt() * normal(8, seed=2), atol=1e-5)


def test_sampling_gives_each_id_its_probability():
    logits = torch.log(torch.tensor([[0.1, 0.0, 0.6, 0.3]])).repeat(1000, 1)
    uniforms = (torch.arange(1000) + 0.5) / 1000
    assert torch.bincount(sampling(logits, uniforms), minlength=4).tolist() == [100, 0, 600, 300]
    cold = sampling(logits, uniforms, temperature=0.5)  # squares: 0.01, 0.36, 0.09
    assert torch.bincount(cold, minlength=4).tolist() == pytest.approx([22, 0, 783, 196], abs=1)
    assert sampling(logits, uniforms, temperature=0).unique().tolist() == [2]


def test_gathered_experts_are_the_slots_bit_for_bit():
    cache, slots = normal(7, 33, dtype=torch.bfloat16), torch.tensor([3, 0, 3, 6])
    assert torch.equal(gather_experts(cache, slots), slow_gather_experts(cache, slots))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gemm(normal(2, 3), normal(4, 5)), r"got x \[2, 3\]"),
        (
            lambda: fused_moe(*moe_arrays(1, 8, 4, 4, True, torch.float64), top_k=2, activation="silu"),
            "got float64",
        ),
        (lambda: router_top_k(normal(2, 3), top_k=4), "between 1 and the 3 experts, got 4"),
        (lambda: norm(normal(2, 3), normal(4)), r"got \[2, 3\] and \[4\]"),
        (
            lambda: sampling(normal(2, 3), torch.rand(2), temperature=-1.0),
            "temperature must be 0 or above, got -1",
        ),
        (lambda: sampling(normal(2, 3), torch.rand(3)), "one uniform number a row"),
        (lambda: gather_experts(normal(2, 3), torch.tensor([2])), "are not all in 0 … 1"),
        (
            lambda: prefill_attention(*[normal(1, 4, 2, 8)] * 3, window=0),
            "at least 1 token and causal, got 0",
        ),
        (lambda: prefill_attention(*[normal(1, 4, 2, 8)] * 3, window=2, causal=False), "causal=False"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_was_given(call, message):
    with pytest.raises(UsageError, match=message):
        call()
