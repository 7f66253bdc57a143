"""The Mamba-2 scan in Triton, cut into chunks (SSD, arXiv 2405.21060): matrix products inside, a short scan over chunks.

Four launches: sums of dt·A inside each chunk; what each chunk alone leaves as state, in each direction; the states that
enter each chunk; the outputs. In both directions at once the products inside a chunk are shared: one score matrix without
a mask, in which the diagonal stands once. Scores are formed anew for every head, also where heads share B and C.
"""

# Kernels take pointers and tiles, which have no Python type:
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from ..reference.shapes import scan_sizes
from .launch import cdiv, check_arrays, check_placement, dot, jit, tile

_TOKENS_BYTES = 128
"""Tokens of a tile times bytes of an element: at head size 64 and state size 128 all tiles of a program fit 99 KiB."""


@jit
def _decay_sums(dt, A, sums, tokens, chunk, HEADS: tl.constexpr, CHUNK: tl.constexpr):
    """sums[b, h, t] = Σ dt·A from the chunk's first token to t, both included."""
    head, sequence = tl.program_id(1), tl.program_id(2).to(tl.int64)
    step = tl.arange(0, CHUNK)
    t = tl.program_id(0) * chunk + step
    ok = (step < chunk) & (t < tokens)
    rate = tl.load(dt + (sequence * tokens + t) * HEADS + head, mask=ok, other=0.0).to(tl.float32)
    total = tl.cumsum(rate * tl.load(A + head).to(tl.float32), axis=0)
    tl.store(sums + (sequence * HEADS + head) * tokens + t, total, mask=ok)


@jit
def _chunk_states(
    x, dt, A, B, sums, states, tokens, chunk, chunks,
    HEADS: tl.constexpr, GROUPS: tl.constexpr, P: tl.constexpr, N: tl.constexpr,
    TOKENS: tl.constexpr, WIDE_P: tl.constexpr, WIDE_N: tl.constexpr, BIDIRECTIONAL: tl.constexpr,
):  # fmt: skip
    """states[direction, b, h, chunk] = Σ_t decay · dt x Bᵀ: forward decayed to the chunk's end, backward to its start."""
    here, head = tl.program_id(0), tl.program_id(1)
    sequence, backward = (
        (tl.program_id(2), 0) if not BIDIRECTIONAL else (tl.program_id(2) // 2, tl.program_id(2) % 2)
    )
    sequence = sequence.to(tl.int64)
    p, n = tl.arange(0, WIDE_P), tl.arange(0, WIDE_N)
    begin = here * chunk
    end = tl.minimum(begin + chunk, tokens)
    lane = (sequence * HEADS + head) * tokens
    whole = tl.load(sums + lane + end - 1)
    a = tl.load(A + head).to(tl.float32)
    acc = tl.zeros([WIDE_P, WIDE_N], tl.float32)
    for at in range(begin, end, TOKENS):
        t = at + tl.arange(0, TOKENS)
        ok = t < end
        rate = tl.load(dt + (sequence * tokens + t) * HEADS + head, mask=ok, other=0.0).to(tl.float32)
        upto = tl.load(sums + lane + t, mask=ok, other=0.0)
        remaining = tl.where(backward == 1, upto - rate * a, whole - upto)
        weight = tl.where(ok, tl.exp(remaining), 0.0) * rate
        x_at = x + ((sequence * tokens + t) * HEADS + head)[None, :] * P + p[:, None]
        x_tile = tl.load(x_at, mask=ok[None, :] & (p < P)[:, None], other=0.0)
        weighted = (x_tile.to(tl.float32) * weight[None, :]).to(x_tile.dtype)
        B_at = B + ((sequence * tokens + t) * GROUPS + head // (HEADS // GROUPS))[:, None] * N + n[None, :]
        acc = dot(weighted, tl.load(B_at, mask=ok[:, None] & (n < N)[None, :], other=0.0), acc)
    batch = tl.num_programs(2) // (2 if BIDIRECTIONAL else 1)
    place = ((backward * batch + sequence) * HEADS + head) * chunks + here
    at = states + place * P * N + p[:, None] * N + n[None, :]
    tl.store(at, acc, mask=(p < P)[:, None] & (n < N)[None, :])


@jit
def _pass_states(
    sums,
    states,
    tokens,
    chunk,
    chunks,
    elements,
    HEADS: tl.constexpr,
    ELEMENTS: tl.constexpr,
    BIDIRECTIONAL: tl.constexpr,
):
    """In place: each chunk's own state becomes the state that enters it, from the left, or backward from the right."""
    element = tl.program_id(0) * ELEMENTS + tl.arange(0, ELEMENTS)
    ok = element < elements
    head = tl.program_id(1)
    sequence, backward = (
        (tl.program_id(2), 0) if not BIDIRECTIONAL else (tl.program_id(2) // 2, tl.program_id(2) % 2)
    )
    sequence = sequence.to(tl.int64)
    batch = tl.num_programs(2) // (2 if BIDIRECTIONAL else 1)
    first = ((backward * batch + sequence) * HEADS + head) * chunks
    carried = tl.zeros([ELEMENTS], tl.float32)
    for step in range(0, chunks):
        here = tl.where(backward == 1, chunks - 1 - step, step)
        end = tl.minimum((here + 1) * chunk, tokens)
        decay = tl.exp(tl.load(sums + (sequence * HEADS + head) * tokens + end - 1))
        at = states + (first + here) * elements + element
        own = tl.load(at, mask=ok, other=0.0)
        tl.store(at, carried, mask=ok)
        carried = decay * carried + own


@jit
def _outputs(
    x, dt, A, B, C, D, sums, states, y, tokens, chunk, chunks, tiles,
    HEADS: tl.constexpr, GROUPS: tl.constexpr, P: tl.constexpr, N: tl.constexpr,
    TOKENS: tl.constexpr, WIDE_P: tl.constexpr, WIDE_N: tl.constexpr, BIDIRECTIONAL: tl.constexpr,
):  # fmt: skip
    here, head, sequence = tl.program_id(0) // tiles, tl.program_id(1), tl.program_id(2).to(tl.int64)
    begin = here * chunk
    end = tl.minimum(begin + chunk, tokens)
    start = begin + tl.program_id(0) % tiles * TOKENS
    if start >= end:
        return
    t, p, n = start + tl.arange(0, TOKENS), tl.arange(0, WIDE_P), tl.arange(0, WIDE_N)
    t_ok, p_ok, n_ok = t < end, p < P, n < N
    lane = (sequence * HEADS + head) * tokens
    group = head // (HEADS // GROUPS)
    a = tl.load(A + head).to(tl.float32)
    upto_t = tl.load(sums + lane + t, mask=t_ok, other=0.0)
    rate_t = tl.load(dt + (sequence * tokens + t) * HEADS + head, mask=t_ok, other=0.0).to(tl.float32)
    C_at = C + ((sequence * tokens + t) * GROUPS + group)[:, None] * N + n[None, :]
    C_tile = tl.load(C_at, mask=t_ok[:, None] & n_ok[None, :], other=0.0)
    state_at = states + ((sequence * HEADS + head) * chunks + here) * P * N + p[None, :] * N + n[:, None]
    state_ok = p_ok[None, :] & n_ok[:, None]
    nothing = tl.zeros([TOKENS, WIDE_P], tl.float32)
    entering = tl.load(state_at, mask=state_ok, other=0.0).to(C_tile.dtype)
    acc = dot(C_tile, entering, nothing) * tl.exp(upto_t)[:, None]
    if BIDIRECTIONAL:
        whole = tl.load(sums + lane + end - 1)
        state_at += tl.num_programs(2).to(tl.int64) * HEADS * chunks * P * N
        entering = tl.load(state_at, mask=state_ok, other=0.0).to(C_tile.dtype)
        acc += dot(C_tile, entering, nothing) * tl.exp(whole - upto_t + rate_t * a)[:, None]
        last = end
    else:
        last = tl.minimum(start + TOKENS, end)
    for at in range(begin, last, TOKENS):
        s = at + tl.arange(0, TOKENS)
        s_ok = s < end
        B_at = B + ((sequence * tokens + s) * GROUPS + group)[None, :] * N + n[:, None]
        scores = dot(
            C_tile,
            tl.load(B_at, mask=s_ok[None, :] & n_ok[:, None], other=0.0),
            tl.zeros([TOKENS, TOKENS], tl.float32),
        )
        upto_s = tl.load(sums + lane + s, mask=s_ok, other=0.0)
        rate_s = tl.load(dt + (sequence * tokens + s) * HEADS + head, mask=s_ok, other=0.0).to(tl.float32)
        earlier = s[None, :] <= t[:, None]
        fade = upto_t[:, None] - upto_s[None, :]
        if BIDIRECTIONAL:  # from a later token the decay runs from t to s − 1
            fade = tl.where(earlier, fade, (upto_s - rate_s * a)[None, :] - (upto_t - rate_t * a)[:, None])
            seen = s_ok[None, :] & t_ok[:, None]
        else:
            seen = earlier & s_ok[None, :] & t_ok[:, None]
        weight = tl.exp(tl.where(seen, fade, -float("inf"))) * rate_s[None, :]
        x_at = x + ((sequence * tokens + s) * HEADS + head)[:, None] * P + p[None, :]
        x_tile = tl.load(x_at, mask=s_ok[:, None] & p_ok[None, :], other=0.0)
        acc = dot((scores * weight).to(x_tile.dtype), x_tile, acc)
    place = ((sequence * tokens + t) * HEADS + head)[:, None] * P + p[None, :]
    ok = t_ok[:, None] & p_ok[None, :]
    acc += tl.load(D + head).to(tl.float32) * tl.load(x + place, mask=ok, other=0.0).to(tl.float32)
    tl.store(y + place, acc.to(y.dtype.element_ty), mask=ok)


def mamba2_scan(
    x_BTHp: Tensor,
    dt_BTH: Tensor,
    A_H: Tensor,
    B_BTGn: Tensor,
    C_BTGn: Tensor,
    D_H: Tensor,
    *,
    chunk: int,
    bidirectional: bool,
) -> Tensor:
    """y_BTHp, as `kernels.reference.mamba2_scan`. x, B and C share a format; dt, A and D may be wider.

    States pass between chunks in fp32 and enter the products in the format of `x_BTHp`. Raises `UsageError` as there.
    """
    sizes = scan_sizes(x_BTHp, dt_BTH, A_H, B_BTGn, C_BTGn, D_H, chunk)
    inputs = {"x_BTHp": x_BTHp, "B_BTGn": B_BTGn, "C_BTGn": C_BTGn}
    check_arrays(same_format=inputs)
    check_placement({"x_BTHp": x_BTHp, "dt_BTH": dt_BTH, "A_H": A_H, "D_H": D_H})
    y_BTHp = torch.empty_like(x_BTHp)
    if y_BTHp.numel() == 0:
        return y_BTHp
    batch, tokens, heads, head_dim, groups, state = sizes
    chunk = min(chunk, tokens)
    chunks, directions = cdiv(tokens, chunk), 2 if bidirectional else 1
    sums_BHT = torch.empty(batch, heads, tokens, dtype=torch.float32, device=x_BTHp.device)
    _decay_sums[(chunks, heads, batch)](
        dt_BTH, A_H, sums_BHT, tokens, chunk, HEADS=heads, CHUNK=tile(chunk), num_warps=4
    )
    most_tokens = _TOKENS_BYTES // x_BTHp.element_size()
    cut = {
        "HEADS": heads, "GROUPS": groups, "P": head_dim, "N": state, "TOKENS": tile(chunk, largest=most_tokens),
        "WIDE_P": tile(head_dim), "WIDE_N": tile(state), "BIDIRECTIONAL": bidirectional, "num_warps": 4, "num_stages": 2,
    }  # fmt: skip
    states = torch.empty(
        directions, batch, heads, chunks, head_dim, state, dtype=torch.float32, device=x_BTHp.device
    )
    _chunk_states[(chunks, heads, batch * directions)](
        x_BTHp, dt_BTH, A_H, B_BTGn, sums_BHT, states, tokens, chunk, chunks, **cut
    )
    elements = head_dim * state
    across = tile(elements, largest=512)
    _pass_states[(cdiv(elements, across), heads, batch * directions)](
        sums_BHT, states, tokens, chunk, chunks, elements,
        HEADS=heads, ELEMENTS=across, BIDIRECTIONAL=bidirectional, num_warps=4,
    )  # fmt: skip
    tiles = cdiv(chunk, cut["TOKENS"])
    _outputs[(chunks * tiles, heads, batch)](
        x_BTHp,
        dt_BTH,
        A_H,
        B_BTGn,
        C_BTGn,
        D_H,
        sums_BHT,
        states,
        y_BTHp,
        tokens,
        chunk,
        chunks,
        tiles,
        **cut,
    )
    return y_BTHp
