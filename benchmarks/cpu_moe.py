"""The processor's fused mixture against the plain per-expert torch loop, in the same run.

    python benchmarks/cpu_moe.py [--threads N]

The loop is the usual one: route, then for every expert that has tokens select them, two products, add back. Both work
on weights that no cache holds (several layers in rotation). Each figure is the median ratio of pairs taken one after
the other, above 1 where ours is faster. `small_batch_x` is the geometric mean over 1 to 4 tokens, `worst_x` the
smallest ratio of all.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time

import torch
from codesign.kernels.arena import Arena
from codesign.kernels.cpu.fused_moe import fused_moe
from codesign.kernels.environment import pinned
from torch import Tensor

SHAPES = {"olmoe": (2048, 1024, 64, 8), "qwen3-30b": (2048, 768, 128, 8), "small": (512, 256, 64, 8)}
"""Hidden, expert width, experts, top-k; gated."""
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_CACHE_BYTES = 2**26  # more than the last-level cache of the machine in the catalog
FORMATS = {"bf16": torch.bfloat16, "fp32": torch.float32}


def plain_loop(x: Tensor, router: Tensor, w_in: Tensor, w_out: Tensor, top_k: int) -> Tensor:
    """What every textbook writes, with idle experts skipped."""
    weights, experts = torch.topk(torch.softmax((x @ router.T).float(), dim=-1), top_k)
    weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
    y = torch.zeros_like(x)
    for expert in range(router.shape[0]):
        tokens, choices = torch.where(experts == expert)
        if not len(tokens):
            continue
        gate, up = (x[tokens] @ w_in[expert].T).chunk(2, dim=-1)
        out = (torch.nn.functional.silu(gate) * up) @ w_out[expert].T
        y.index_add_(0, tokens, out * weights[tokens, choices, None])
    return y


def compare(
    arena: Arena, shape: tuple[int, int, int, int], tokens: int, dtype: torch.dtype, budget_s: float
) -> tuple[float, float, float]:
    """(our median seconds, the loop's, median of the loop's time over ours), in pairs whose order alternates.

    Within a pair the two work on different layers, so that neither finds the weights in the cache where the other left them.
    """
    hidden, width, experts, top_k = shape
    sizes = [(tokens, hidden), (experts, hidden), (experts, 2 * width, hidden), (experts, hidden, width)]
    one_bytes = 3 * experts * hidden * width * dtype.itemsize
    count = 2 * max(1, -(-_CACHE_BYTES // one_bytes))
    layers = [[arena.take(*one, dtype=dtype) for one in sizes] for _ in range(count)]
    calls = (
        lambda arrays: fused_moe(*arrays, top_k=top_k, activation="silu"),
        lambda arrays: plain_loop(*arrays, top_k),
    )
    seconds: tuple[list[float], list[float]] = ([], [])
    began, turn = time.perf_counter(), 0
    with torch.inference_mode():
        while turn < 8 or (time.perf_counter() - began < budget_s and turn < 80):
            for side in (0, 1) if turn % 2 else (1, 0):
                arrays = layers[(turn + side * count // 2) % count]
                started = time.perf_counter()
                calls[side](arrays)
                seconds[side].append(time.perf_counter() - started)
            turn += 1
    ours, theirs = (samples[1:] for samples in seconds)  # the first pair warms up
    ratios = [loop / own for own, loop in zip(ours, theirs, strict=True)]
    return statistics.median(ours), statistics.median(theirs), statistics.median(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget-s", type=float, default=1.0, help="a shape and number of tokens")
    options = parser.parse_args()
    arena = Arena(2**31)
    figures: dict[str, float] = {}
    with pinned(options.threads):
        print(f"{'shape':12}{'format':>7}{'tokens':>8}{'ours ms':>10}{'loop ms':>10}{'x':>7}")
        for form, dtype in FORMATS.items():
            for name, shape in SHAPES.items():
                for tokens in TOKENS:
                    ours, loop, ratio = compare(arena, shape, tokens, dtype, options.budget_s)
                    figures[f"{name}_{form}_{tokens}_x"] = round(ratio, 3)
                    print(
                        f"{name:12}{form:>7}{tokens:8}{ours * 1e3:10.3f}{loop * 1e3:10.3f}{ratio:7.2f}",
                        flush=True,
                    )
    small = [value for key, value in figures.items() if int(key.split("_")[-2]) <= 4]
    figures["small_batch_x"] = round(math.exp(statistics.fmean(map(math.log, small))), 3)
    figures["worst_x"] = min(figures.values())
    print(json.dumps({"name": "cpu_moe", "figures": figures}))


if __name__ == "__main__":
    main()
