"""Every Triton kernel against its plain reference: odd sizes, every format, outputs in memory full of NaN.

On a machine with a GPU these run compiled, elsewhere in Triton's interpreter. There bf16 products are formed in fp32
(see `kernels.gpu.launch.dot`), so the tensor cores' bf16 path is proved on a device only: tests marked gpu.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="Triton exists for Linux only")

from codesign.errors import UsageError  # noqa: E402
from codesign.kernels.gpu.routing import sort_by_expert  # noqa: E402
from codesign.kernels.reference.agreement import disagreement  # noqa: E402
from codesign.kernels.reference.inputs import MAKERS  # noqa: E402
from kernel_twins import ALLOWED, DEVICE, FORMATS, generator, memory_full_of_nan, roundings_apart, twins  # noqa: E402

MOE = {"tokens": 19, "hidden": 40, "num_experts": 4, "top_k": 2, "width": 24}
ATTENTION = {"heads": 6, "kv_heads": 2, "head_dim": 20}
SCAN = {"batch": 1, "tokens": 37, "heads": 2, "head_dim": 10, "groups": 2, "state": 12, "chunk": 16}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gated": ("fused_moe", MOE),
    "squared ReLU": ("fused_moe", {**MOE, "gated": False, "activation": "relu2"}),
    "one token, all experts": ("fused_moe", {**MOE, "tokens": 1, "top_k": 4}),
    "deeper than a tile": ("fused_moe", {"tokens": 3, "hidden": 150, "num_experts": 2, "top_k": 1, "width": 140}),
    "more experts than tokens": ("fused_moe", {**MOE, "tokens": 3, "num_experts": 17, "top_k": 1}),
    "latent": ("latent_moe", {**MOE, "latent": 17}),
    "latent, gated": ("latent_moe", {**MOE, "latent": 32, "gated": True, "activation": "silu"}),
    "grouped heads, pages of 5": ("decode_attention", {"batch": 3, "context": 43, "page": 5, "ragged": True, **ATTENTION}),
    "one KV head, window, long": (
        "decode_attention", {"batch": 1, "context": 300, "heads": 5, "kv_heads": 1, "head_dim": 33, "page": 7, "window": 170},
    ),
    "tree, one split": ("tree_attention", {"batch": 1, "nodes": 7, "context": 50, "ragged": True, **ATTENTION}),
    "tree, many splits": ("tree_attention", {"batch": 1, "nodes": 13, "context": 270, **ATTENTION}),
    "blocks of 5": ("block_attention", {"batch": 1, "tokens": 77, "block": 5, **ATTENTION}),
    "blocks of 32": ("block_attention", {"batch": 1, "tokens": 140, "block": 32, **ATTENTION}),
    "blocks longer than a tile": ("block_attention", {"batch": 1, "tokens": 130, "block": 100, **ATTENTION}),
    "one short block": ("block_attention", {"batch": 1, "tokens": 9, "block": 64, **ATTENTION}),
    "causal scan": ("mamba2_scan", {**SCAN, "bidirectional": False}),
    "scan both ways": ("mamba2_scan", {**SCAN, "bidirectional": True}),
    "scan with a tile and a half a chunk": ("mamba2_scan", {**SCAN, "tokens": 150, "chunk": 90, "bidirectional": True}),
    "scan shorter than a chunk": ("mamba2_scan", {**SCAN, "tokens": 5, "chunk": 64, "bidirectional": True}),
}  # fmt: skip


def inputs_of(case: str, format: str, seed: int = 0) -> dict[str, Any]:
    name, sizes = CASES[case]
    return MAKERS[name](generator(seed), FORMATS[format], **sizes)


@pytest.mark.parametrize("format", ["fp32", "bf16"])
@pytest.mark.parametrize("case", CASES)
def test_a_kernel_gives_what_its_reference_gives(case: str, format: str) -> None:
    assert roundings_apart(CASES[case][0], inputs_of(case, format)) < ALLOWED


@pytest.mark.parametrize("case", ["gated", "grouped heads, pages of 5", "scan both ways"])
def test_half_precision_works_too(case: str) -> None:
    assert roundings_apart(CASES[case][0], inputs_of(case, "fp16")) < ALLOWED


@pytest.mark.parametrize("elements", [37, 36, 64])
@pytest.mark.parametrize("format", FORMATS)
def test_gathered_experts_are_the_slots_bit_for_bit(format: str, elements: int) -> None:
    inputs = MAKERS["gather_experts"](generator(), FORMATS[format], slots=6, elements=elements, wanted=7)
    inputs["cache_SE"][2, 3] = float("nan")
    fast, slow = twins("gather_experts")
    with memory_full_of_nan():
        found = fast(**inputs)
    assert torch.equal(found.view(torch.uint8), slow(**inputs).view(torch.uint8))


def test_router_weights_that_are_not_renormalised_stay_as_the_softmax_gave_them() -> None:
    assert roundings_apart("fused_moe", {**inputs_of("gated", "fp32"), "renormalise": False}) < ALLOWED


def test_equal_experts_are_taken_in_the_order_of_their_number() -> None:
    inputs = inputs_of("gated", "fp32")
    inputs["router_ND"].zero_()
    assert roundings_apart("fused_moe", inputs) < ALLOWED


def test_the_sort_puts_every_pair_once_into_a_block_of_its_own_expert() -> None:
    experts = torch.randint(7, (11, 3), generator=generator(), device=DEVICE, dtype=torch.int32)
    experts[experts == 4] = 3  # an expert that nobody wants
    with memory_full_of_nan():
        pair, expert, rows = sort_by_expert(experts, 7, 16)
    seen: list[int] = []
    for number, owner in enumerate(expert.tolist()):
        held = pair[number * rows : (number + 1) * rows].tolist()
        real = [place for place in held if place < 33] if owner >= 0 else []
        assert all(experts.flatten()[place] == owner for place in real)
        assert owner < 0 or (real and held == real + [33] * (rows - len(real)))
        seen += real
    assert sorted(seen) == list(range(33))
    assert 4 not in expert.tolist()


def test_what_lies_beyond_a_sequence_is_never_read() -> None:
    inputs = inputs_of("grouped heads, pages of 5", "fp32")
    inputs["lengths_B"][0] = 0  # padding of a batch: zeros come out
    expected = twins("decode_attention")[1](**inputs)
    for b, length in enumerate(inputs["lengths_B"].tolist()):
        for t in range(length, 45):
            page = int(inputs["page_table_BX"][b, t // 5])
            inputs["k_pages_PGhd"][page, t % 5] = inputs["v_pages_PGhd"][page, t % 5] = float("nan")
        inputs["page_table_BX"][b, -(-length // 5) :] = -1
    with memory_full_of_nan():
        found = twins("decode_attention")[0](**inputs)
    assert disagreement(found, expected) < ALLOWED
    assert not found[0].any()


def test_the_order_of_pages_does_not_matter() -> None:
    inputs = inputs_of("one KV head, window, long", "fp32")
    fast, _ = twins("decode_attention")
    before = fast(**inputs)
    shuffle = torch.randperm(len(inputs["k_pages_PGhd"]), generator=generator(1), device=DEVICE)
    moved = {
        **inputs,
        "page_table_BX": torch.argsort(shuffle).to(torch.int32)[inputs["page_table_BX"].long()],
    }
    moved |= {name: inputs[name][shuffle] for name in ("k_pages_PGhd", "v_pages_PGhd")}
    assert torch.equal(fast(**moved), before)


def test_a_kernel_runs_twice_to_the_same_bits() -> None:
    for case in ("more experts than tokens", "tree, many splits"):
        fast, _ = twins(CASES[case][0])
        assert torch.equal(fast(**inputs_of(case, "fp32")), fast(**inputs_of(case, "fp32")))


def test_no_tokens_give_no_rows() -> None:
    assert twins("fused_moe")[0](
        **inputs_of("gated", "fp32") | {"x_TD": torch.empty(0, 40, device=DEVICE)}
    ).shape == (0, 40)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"top_k": 6}, "top_k must be between 1 and the 4 experts, got 6"),
        ({"activation": "gelu"}, "unknown activation 'gelu'"),
        (
            {"router_ND": torch.ones(4, 39, device=DEVICE)},
            r"router_ND has shape \[4, 39\], expected \[N, 40\]",
        ),
        (
            {"x_TD": torch.ones(19, 40, device=DEVICE, dtype=torch.float64)},
            "x_TD is torch.float64, expected one of",
        ),
        (
            {"x_TD": torch.ones(19, 40, device=DEVICE, dtype=torch.float16)},
            "router_ND is torch.float32, but x_TD is",
        ),
        ({"x_TD": torch.ones(40, 19, device=DEVICE).T}, "x_TD must be contiguous"),
    ],
)
def test_a_wrong_call_names_the_argument_and_what_would_be_right(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        twins("fused_moe")[0](**inputs_of("gated", "fp32") | change)


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE != "cuda", reason="no CUDA device here")
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("fused_moe", {"tokens": 333, "hidden": 1024, "num_experts": 64, "top_k": 8, "width": 512}),
        ("latent_moe", {"tokens": 100, "hidden": 1000, "latent": 264, "num_experts": 96, "top_k": 11, "width": 392}),
        ("decode_attention", {"batch": 5, "context": 5001, "heads": 32, "kv_heads": 8, "head_dim": 128, "ragged": True}),
        ("tree_attention", {"batch": 2, "nodes": 61, "context": 3001, "heads": 32, "kv_heads": 4, "head_dim": 128}),
        ("block_attention", {"batch": 1, "tokens": 1500, "heads": 16, "kv_heads": 4, "head_dim": 96, "block": 48}),
        ("mamba2_scan", {"batch": 1, "tokens": 1500, "heads": 16, "head_dim": 64, "groups": 2, "state": 128, "chunk": 256, "bidirectional": True}),
    ],
)  # fmt: skip
def test_a_device_agrees_with_the_reference_at_real_sizes(
    name: str, sizes: dict[str, Any], format: str
) -> None:
    assert roundings_apart(name, MAKERS[name](generator(), FORMATS[format], **sizes)) < ALLOWED
