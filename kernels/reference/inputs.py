"""Random inputs of a call of each kernel, by its sizes: for tests, calibration and benchmarks. Call as `kernel(**inputs)`.

Values come from the generator, on its device. Weights are scaled by 1/√fan-in, so that activations stay near 1.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Generator, Tensor

Inputs = dict[str, Any]


def normal(generator: Generator, format: torch.dtype, *shape: int, scale: float = 1.0) -> Tensor:
    return torch.randn(*shape, generator=generator, device=generator.device, dtype=format).mul_(scale)


def fused_moe(
    generator: Generator, format: torch.dtype, *, tokens: int, hidden: int, num_experts: int, top_k: int, width: int,
    gated: bool = True, activation: str = "silu",
) -> Inputs:  # fmt: skip
    experts = _experts(generator, format, num_experts, hidden, width, gated)
    return {
        "x_TD": normal(generator, format, tokens, hidden),
        "router_ND": normal(generator, format, num_experts, hidden, scale=hidden**-0.5),
        "w_in_NID": experts[0], "w_out_NDM": experts[1], "top_k": top_k, "activation": activation,
    }  # fmt: skip


def latent_moe(
    generator: Generator, format: torch.dtype, *, tokens: int, hidden: int, latent: int, num_experts: int, top_k: int,
    width: int, gated: bool = False, activation: str = "relu2",
) -> Inputs:  # fmt: skip
    experts = _experts(generator, format, num_experts, latent, width, gated)
    return {
        "x_TD": normal(generator, format, tokens, hidden),
        "router_ND": normal(generator, format, num_experts, hidden, scale=hidden**-0.5),
        "down_LD": normal(generator, format, latent, hidden, scale=hidden**-0.5),
        "w_in_NIL": experts[0], "w_out_NLM": experts[1],
        "up_DL": normal(generator, format, hidden, latent, scale=latent**-0.5),
        "top_k": top_k, "activation": activation,
    }  # fmt: skip


def _experts(
    generator: Generator, format: torch.dtype, num_experts: int, wide: int, width: int, gated: bool
) -> tuple[Tensor, Tensor]:
    rows = 2 * width if gated else width
    return (
        normal(generator, format, num_experts, rows, wide, scale=wide**-0.5),
        normal(generator, format, num_experts, wide, width, scale=width**-0.5),
    )


def gather_experts(
    generator: Generator, format: torch.dtype, *, slots: int, elements: int, wanted: int
) -> Inputs:
    chosen = torch.randint(slots, (wanted,), generator=generator, device=generator.device)
    return {"cache_SE": normal(generator, format, slots, elements), "slots_K": chosen}


def decode_attention(
    generator: Generator, format: torch.dtype, *, batch: int, context: int, heads: int, kv_heads: int, head_dim: int,
    page: int = 16, window: int | None = None, ragged: bool = False,
) -> Inputs:  # fmt: skip
    """Every sequence holds `context` tokens, or with `ragged` 1 … `context`; pages are shuffled and each is used once."""
    columns = -(-context // page)
    order = torch.randperm(batch * columns, generator=generator, device=generator.device)
    pages = (batch * columns, page, kv_heads, head_dim)
    return {
        "q_BHd": normal(generator, format, batch, heads, head_dim),
        "k_pages_PGhd": normal(generator, format, *pages), "v_pages_PGhd": normal(generator, format, *pages),
        "page_table_BX": order.reshape(batch, columns).to(torch.int32),
        "lengths_B": _lengths(generator, batch, context, ragged), "window": window,
    }  # fmt: skip


def tree_attention(
    generator: Generator, format: torch.dtype, *, batch: int, nodes: int, context: int, heads: int, kv_heads: int,
    head_dim: int, ragged: bool = False,
) -> Inputs:  # fmt: skip
    """A random tree: each node's parent is drawn from the nodes before it."""
    mask = torch.eye(nodes, dtype=torch.bool)
    for node in range(1, nodes):
        parent = int(torch.randint(node, (1,), generator=generator, device=generator.device))
        mask[node] |= mask[parent]
    past, drafts = (batch, context, kv_heads, head_dim), (batch, nodes, kv_heads, head_dim)
    return {
        "q_BJHd": normal(generator, format, batch, nodes, heads, head_dim),
        "k_BChd": normal(generator, format, *past), "v_BChd": normal(generator, format, *past),
        "lengths_B": _lengths(generator, batch, context, ragged), "tree_mask_JJ": mask.to(generator.device),
        "k_tree_BJhd": normal(generator, format, *drafts), "v_tree_BJhd": normal(generator, format, *drafts),
    }  # fmt: skip


def _lengths(generator: Generator, batch: int, context: int, ragged: bool) -> Tensor:
    if not ragged:
        return torch.full((batch,), context, dtype=torch.int32, device=generator.device)
    return torch.randint(
        1, context + 1, (batch,), generator=generator, device=generator.device, dtype=torch.int32
    )


def block_attention(
    generator: Generator,
    format: torch.dtype,
    *,
    batch: int,
    tokens: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    block: int,
) -> Inputs:
    q = normal(generator, format, batch, tokens, heads, head_dim)
    k, v = (normal(generator, format, batch, tokens, kv_heads, head_dim) for _ in range(2))
    return {"q_BTHd": q, "k_BThd": k, "v_BThd": v, "block": block}


def mamba2_scan(
    generator: Generator, format: torch.dtype, *, batch: int, tokens: int, heads: int, head_dim: int, groups: int, state: int,
    chunk: int, bidirectional: bool,
) -> Inputs:  # fmt: skip
    """Step sizes and decay rates as models are initialised (arXiv 2405.21060): dt log-uniform in 0.001 … 0.1, −A in 1 … 16."""
    wide = torch.float32
    device = generator.device
    dt = torch.exp(
        torch.rand(batch, tokens, heads, generator=generator, device=device) * 4.605 - 6.908
    )  # ln 100, ln 1000
    shared = (batch, tokens, groups, state)
    return {
        "x_BTHp": normal(generator, format, batch, tokens, heads, head_dim),
        "dt_BTH": dt, "A_H": -1.0 - 15.0 * torch.rand(heads, generator=generator, device=device),
        "B_BTGn": normal(generator, format, *shared), "C_BTGn": normal(generator, format, *shared, scale=state**-0.5),
        "D_H": normal(generator, wide, heads), "chunk": chunk, "bidirectional": bidirectional,
    }  # fmt: skip


MAKERS = {
    maker.__name__: maker
    for maker in (
        fused_moe,
        latent_moe,
        gather_experts,
        decode_attention,
        tree_attention,
        block_attention,
        mamba2_scan,
    )
}
"""Kernel → the function that makes its inputs."""
