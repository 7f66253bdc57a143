"""Check every Triton kernel against its reference on this GPU, time it against its floor, and write the measurements.

    python benchmarks/gpu_lane.py --out runs/gpu-lane
    python benchmarks/gpu_lane.py --tiny

The floor is max(bytes / copy bandwidth, FLOPs / matrix rate), both measured here first: what no kernel beats unless its
data stay in the cache. Each time is the median of queued calls with the L2 cache overwritten in between. A kernel that
disagrees with its reference is not timed. Measurements of a kernel are saved when it is done, so an interruption loses
only what had not run. `--tiny` checks small sizes only, in Triton's interpreter where there is no GPU, and times nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from codesign.errors import WorkbenchError
from codesign.kernels.devices import open_device
from codesign.kernels.probe import probe_gpus
from codesign.kernels.registry import kernel as kernel_entry

if TYPE_CHECKING:
    import torch
    from codesign.kernels.reference.work import CallWork
    from codesign.kernels.roof import Roof
    from codesign.kernels.timing import Timing

Sizes = dict[str, Any]
LLAMA_8B = {"heads": 32, "kv_heads": 8, "head_dim": 128}
QWEN3_30B = {"hidden": 2048, "num_experts": 128, "top_k": 8, "width": 768}
OLMOE = {"hidden": 2048, "num_experts": 64, "top_k": 8, "width": 1024}
NEMOTRON_3_SUPER = {"hidden": 4096, "latent": 1024, "num_experts": 512, "top_k": 22, "width": 2688}
MAMBA_2 = {"batch": 1, "heads": 64, "head_dim": 64, "groups": 8, "state": 128, "chunk": 256}
SIZES: dict[str, list[Sizes]] = {
    "gather_experts": [{"slots": 256, "elements": 3 * 2048 * 1024, "wanted": wanted} for wanted in (1, 8, 64)],
    "decode_attention": [
        *({"batch": batch, "context": context, **LLAMA_8B} for batch, context in ((1, 1024), (1, 32768), (16, 4096), (64, 8192))),
        {"batch": 64, "context": 8192, "window": 1024, **LLAMA_8B},
    ],
    "tree_attention": [
        {"batch": batch, "nodes": nodes, "context": 4096, **LLAMA_8B} for batch, nodes in ((1, 8), (1, 60), (16, 60))
    ],
    "block_attention": [
        {"batch": 1, "tokens": tokens, "block": block, **LLAMA_8B} for tokens, block in ((1024, 32), (4096, 32), (4096, 256))
    ],
    "mamba2_scan": [
        {"tokens": tokens, "bidirectional": both, **MAMBA_2} for tokens in (2048, 8192) for both in (False, True)
    ],
    "fused_moe": [{"tokens": tokens, **shape} for shape in (OLMOE, QWEN3_30B) for tokens in (1, 16, 256, 4096)],
    "latent_moe": [{"tokens": tokens, **NEMOTRON_3_SUPER} for tokens in (1, 16, 256, 4096)],
}  # fmt: skip
TINY_HEADS = {"heads": 4, "kv_heads": 2, "head_dim": 20}
TINY_SCAN = {"batch": 1, "heads": 2, "head_dim": 8, "groups": 1, "state": 8, "chunk": 16}
TINY: dict[str, list[Sizes]] = {
    "gather_experts": [{"slots": 5, "elements": 99, "wanted": 3}],
    "decode_attention": [{"batch": 2, "context": 37, **TINY_HEADS}],
    "tree_attention": [{"batch": 1, "nodes": 5, "context": 33, **TINY_HEADS}],
    "block_attention": [{"batch": 1, "tokens": 21, "block": 4, **TINY_HEADS}],
    "mamba2_scan": [{"tokens": 21, "bidirectional": True, **TINY_SCAN}],
    "fused_moe": [{"tokens": 5, "hidden": 24, "num_experts": 4, "top_k": 2, "width": 16}],
    "latent_moe": [{"tokens": 5, "hidden": 24, "latent": 16, "num_experts": 4, "top_k": 2, "width": 16}],
}  # fmt: skip
SECONDS_A_CASE = 1.0
FORMAT = "bf16"


class Case(NamedTuple):
    sizes: Sizes
    roundings: float
    work: CallWork
    timing: Timing | None
    """None where nothing is timed: a tiny run, or a kernel that disagrees."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="check small sizes only, without times")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu-lane"), help="folder for the measurements")
    parser.add_argument(
        "--budget-s", type=float, default=300.0, help="no further case starts after this many seconds"
    )
    options = parser.parse_args()
    if not probe_gpus().gpus:
        if not options.tiny:
            sys.exit(f"no GPU: {probe_gpus().reason}; `--tiny` checks the kernels in Triton's interpreter")
        os.environ["TRITON_INTERPRET"] = "1"  # before anything imports Triton
    try:
        figures = lane(
            TINY if options.tiny else SIZES,
            is_timed=not options.tiny,
            out=options.out,
            budget_s=options.budget_s,
        )
    except WorkbenchError as error:
        sys.exit(f"error: {error}")
    print(json.dumps({"name": "gpu_lane", "figures": figures}))
    sys.exit(0 if figures["all_agree"] else 1)


def lane(sizes: dict[str, list[Sizes]], *, is_timed: bool, out: Path, budget_s: float) -> dict[str, Any]:
    """Run every case; the figures for the last line."""
    import torch
    from codesign.kernels.gpu.launch import INTERPRETED
    from codesign.kernels.reference.agreement import ALLOWED_ROUNDINGS, TRUNCATION

    began = time.perf_counter()
    device = "cpu" if INTERPRETED.value and not is_timed else open_device("cuda:0").name
    allowed = ALLOWED_ROUNDINGS * (TRUNCATION if INTERPRETED.value else 1.0)
    roof = measured_roof(device) if is_timed else None
    if roof is None:
        print(
            f"checked only, {'in the interpreter' if INTERPRETED.value else 'on the device'}: no times are taken"
        )
    else:
        copies, products = roof.bytes_per_s / 1e12, roof.flops_per_s[FORMAT] / 1e12
        print(
            f"{torch.cuda.get_device_name()}: copies {copies:.2f} TB/s, bf16 products {products:.0f} TFLOP/s"
        )
    worst, left_out, shares = 0.0, 0, {}
    for kernel, list_of_sizes in sizes.items():
        done: list[Case] = []
        for one in list_of_sizes:
            if time.perf_counter() - began > budget_s:
                left_out += 1
                continue
            case = run_case(kernel, one, device, allowed, is_timed)
            done.append(case)
            if device != "cpu":
                torch.cuda.empty_cache()  # the next case's weights may need it all
            worst = max(worst, case.roundings)
            print(line(kernel, case, allowed, roof), flush=True)
        timed = [case for case in done if case.timing is not None]
        if timed and roof is not None:
            save(kernel, timed, out)
            floors = [roof.floor_of(case.work.bytes, case.work.flops, FORMAT) for case in timed]
            share = [floor / case.timing.median_s for floor, case in zip(floors, timed, strict=True) if case.timing]
            shares |= {
                f"{kernel}_floor_share_min": round(min(share), 3),
                f"{kernel}_floor_share_max": round(max(share), 3),
            }
    seconds = time.perf_counter() - began
    if left_out:
        print(f"{left_out} cases were left out: the budget of {budget_s:.0f} s was spent")
    agree = {
        "all_agree": worst <= allowed,
        "worst_roundings": round(worst, 2) if math.isfinite(worst) else None,
        "allowed_roundings": allowed,
    }
    if roof is None:
        return {**agree, "left_out": left_out}
    rates = {"copy_bytes_per_s": roof.bytes_per_s, "matrix_flops_per_s": roof.flops_per_s[FORMAT]}
    return {**agree, "left_out": left_out, **shares, **rates, "lane_s": round(seconds, 1)}


def run_case(kernel: str, sizes: Sizes, device: str, allowed: float, is_timed: bool) -> Case:
    """Check one call in bf16, then time it if it agrees."""
    import torch
    from codesign.kernels.reference.inputs import MAKERS
    from codesign.kernels.reference.work import work_of

    fast, slow = (kernel_entry(kernel).load(version) for version in ("gpu", "reference"))
    inputs = MAKERS[kernel](torch.Generator(device).manual_seed(0), torch.bfloat16, **sizes)
    roundings = check(fast, slow, inputs)
    timing = None
    if is_timed and roundings <= allowed:
        from codesign.kernels.timing import CudaStopwatch, measure

        timing = measure(partial(fast, **inputs), stopwatch=CudaStopwatch(device), budget_s=SECONDS_A_CASE)
    return Case(sizes, roundings, work_of(kernel, inputs), timing)


def check(
    fast: Callable[..., torch.Tensor], slow: Callable[..., torch.Tensor], inputs: dict[str, Any]
) -> float:
    """Roundings between kernel and reference. Tokens whose k-th expert is a near tie are left out of a mixture's check."""
    from codesign.kernels.reference.agreement import disagreement, has_clear_choice

    found = fast(**inputs)
    rows = slice(None)
    if "q_BHd" in inputs:  # two sequences say what all would
        few = {name: inputs[name][:2] for name in ("q_BHd", "page_table_BX", "lengths_B")}
        inputs, rows = inputs | few, slice(2)
    expected = slow(**inputs)
    if "router_ND" in inputs:
        rows = has_clear_choice(inputs["x_TD"], inputs["router_ND"], inputs["top_k"])
        expected = expected[rows]
    return disagreement(found[rows], expected)


def measured_roof(device: str) -> Roof:
    """This device's copy bandwidth and matrix rate, as `workbench calibrate` measures them."""
    from codesign.kernels.roof import measure_roof

    with open_device(device).bench() as bench:
        return measure_roof(bench, (FORMAT,))


def line(kernel: str, case: Case, allowed: float, roof: Roof | None) -> str:
    sizes = " ".join(f"{name}={value}" for name, value in case.sizes.items())
    verdict = "agrees" if case.roundings <= allowed else "DISAGREES, not timed"
    text = f"{kernel:17}{verdict} ({case.roundings:.2f} roundings)  {sizes}"
    if case.timing is None or roof is None:
        return text
    floor_s, took_s = roof.floor_of(case.work.bytes, case.work.flops, FORMAT), case.timing.median_s
    return f"{text}\n{'':17}{took_s * 1e6:10.1f} µs, floor {floor_s * 1e6:.1f} µs: {floor_s / took_s:.0%}"


def save(kernel: str, cases: list[Case], out: Path) -> Path:
    """The kernel's timed cases as measurements of its operation."""
    import pandas as pd
    import torch
    import triton
    from codesign.kernels.environment import environment
    from codesign.sim.measurement import Measurements

    system = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    rows = []
    for case in cases:
        timing = case.timing
        assert timing is not None
        shape = {
            name: value
            for name, value in dataclasses.asdict(case.work.operation).items()
            if value is not None
        }
        times = {
            "seconds": timing.median_s,
            "samples": list(timing.samples_s),
            "first_call_s": timing.first_call_s,
        }
        about = {"system": system, "framework": "triton", "version": triton.__version__, "kernel": kernel}
        rows.append({**shape, **times, **about})
    table = pd.DataFrame(rows)
    if "window" in table:
        table["window"] = table["window"].fillna(0).astype("int64")
    operation = cases[0].work.operation.name
    return Measurements(
        operation, table, source="benchmarks/gpu_lane.py", environment=environment().to_dict()
    ).save(out / kernel)


if __name__ == "__main__":
    main()
