"""What a call of a kernel amounts to: its operation, read from its inputs, and the work that operation must do."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from ...errors import unknown_name
from ...sim.ops.attention import DecodeAttention, PrefillAttention
from ...sim.ops.moe import MoeLayer
from ...sim.ops.moves import Copy
from ...sim.ops.scan import Scan
from .inputs import Inputs

FORMAT_NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


class CallWork(NamedTuple):
    """`flops` and `bytes` are the least that the call needs; the operation is the row that its time belongs to."""

    operation: Any
    flops: float
    bytes: float


def work_of(kernel: str, inputs: Inputs) -> CallWork:
    """The work of `kernel(**inputs)`. Lengths are read, so a device is waited for. Raises `UsageError` for an unknown kernel."""
    makers = {
        "fused_moe": _moe, "latent_moe": _moe, "gather_experts": _gather, "decode_attention": _decode,
        "tree_attention": _tree, "block_attention": _block, "mamba2_scan": _scan,
    }  # fmt: skip
    if kernel not in makers:
        raise unknown_name("kernel", kernel, makers)
    return makers[kernel](inputs)


def _moe(inputs: Inputs) -> CallWork:
    latent = inputs.get("down_LD")
    w_in, w_out = (
        (inputs["w_in_NID"], inputs["w_out_NDM"])
        if latent is None
        else (inputs["w_in_NIL"], inputs["w_out_NLM"])
    )
    (tokens, hidden), (num_experts, rows, _), width = inputs["x_TD"].shape, w_in.shape, w_out.shape[2]
    format = FORMAT_NAMES[inputs["x_TD"].dtype]
    operation = MoeLayer(
        tokens, hidden, width, num_experts, inputs["top_k"], latent=None if latent is None else latent.shape[0],
        gated=rows == 2 * width, weights=format, activations=format,
    )  # fmt: skip
    return _of(operation)


def _gather(inputs: Inputs) -> CallWork:
    cache = inputs["cache_SE"]
    size_bytes = len(inputs["slots_K"]) * cache.shape[1] * cache.element_size()
    return _of(Copy(size_bytes, source="device", target="device"))


def _decode(inputs: Inputs) -> CallWork:
    """Ragged lengths: the sum over sequences; the operation is that of the mean length."""
    q, pages = inputs["q_BHd"], inputs["k_pages_PGhd"]
    lengths = np.asarray(inputs["lengths_B"].cpu(), np.int64)
    format, (batch, heads, head_dim) = FORMAT_NAMES[q.dtype], q.shape

    def attention(sequences: int, context: Any) -> DecodeAttention:
        return DecodeAttention(
            sequences, context, heads, pages.shape[2], head_dim,
            window=inputs.get("window"), activations=format, kv_cache=format,
        )  # fmt: skip

    each = attention(1, lengths)
    mean = round(float(lengths.mean()))
    return CallWork(attention(batch, mean), float(np.sum(each.flops)), float(np.sum(each.bytes)))


def _tree(inputs: Inputs) -> CallWork:
    """Every node against the context and all nodes, for a mask saves no tile; the operation is a prefill after a prefix."""
    q, k = inputs["q_BJHd"], inputs["k_BChd"]
    format, (batch, nodes, heads, head_dim) = FORMAT_NAMES[q.dtype], q.shape
    lengths = np.asarray(inputs["lengths_B"].cpu(), np.int64)

    def attention(sequences: int, prefix: Any) -> PrefillAttention:
        return PrefillAttention(
            sequences,
            nodes,
            heads,
            k.shape[2],
            head_dim,
            prefix=prefix,
            causal=False,
            activations=format,
            kv_cache=format,
        )

    each = attention(1, lengths)
    mean = round(float(lengths.mean()))
    return CallWork(attention(batch, mean), float(np.sum(each.flops)), float(np.sum(each.bytes)))


def _block(inputs: Inputs) -> CallWork:
    """Each block against itself and all before it; bytes as one causal pass."""
    q, k, block = inputs["q_BTHd"], inputs["k_BThd"], inputs["block"]
    format, (batch, tokens, heads, head_dim) = FORMAT_NAMES[q.dtype], q.shape
    kv_heads = k.shape[2]
    whole = PrefillAttention(batch, tokens, heads, kv_heads, head_dim, activations=format, kv_cache=format)
    starts = np.arange(0, tokens, block)
    sizes = np.minimum(block, tokens - starts)
    blocks = PrefillAttention(
        batch, sizes, heads, kv_heads, head_dim, prefix=starts, causal=False, activations=format
    )
    return CallWork(whole, float(np.sum(blocks.flops)), float(np.sum(whole.bytes)))


def _scan(inputs: Inputs) -> CallWork:
    x, shared = inputs["x_BTHp"], inputs["B_BTGn"]
    batch, tokens, heads, head_dim = x.shape
    return _of(
        Scan(
            batch, tokens, heads, head_dim, shared.shape[2], shared.shape[3],
            bidirectional=inputs["bidirectional"], activations=FORMAT_NAMES[x.dtype],
        )
    )  # fmt: skip


def _of(operation: Any) -> CallWork:
    return CallWork(operation, float(operation.flops), float(operation.bytes))
