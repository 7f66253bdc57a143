"""Results in the shape that a replay has, made from a formula: for pages that must draw every kind of figure."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pandas as pd

BOUNDS = ("never", "unbounded", "belady-mandatory", "belady-bypass")
ODD_NAME = "a</SCRIPT><b>\"x' & <y>\\"


def made_result(
    policies: tuple[str, ...] = ("lru", "fifo", "least-stale"),
    prefetchers: tuple[str, ...] = ("none",),
    capacities: tuple[tuple[str, int], ...] = (("5%", 51), ("10%", 102), ("25%", 256), ("50%", 512)),
    layer_ids: tuple[int, ...] = tuple(range(1, 17)),
    times: bool = True,
    timeline: bool = True,
    trace_path: str = "traces/olmoe.safetensors",
    hardware: str = "rtx-4090",
) -> SimpleNamespace:
    """Rows whose kinds of miss add up, layers that add up to the rows, and a timeline without overlaps."""
    rows, layers = [], []
    for label, experts in capacities:
        for prefetch in prefetchers:
            for rank, policy in enumerate([*BOUNDS, *policies]):
                if policy in BOUNDS and prefetch != "none":
                    continue
                cells = [
                    _cell(policy, rank, prefetch, experts, layer, index)
                    for index, layer in enumerate(layer_ids)
                ]
                key = {"policy": policy, "prefetch": prefetch, "capacity_label": label}
                layers += [key | cell for cell in cells]
                rows.append(key | _row(cells, policy, experts, prefetch, times))
    return SimpleNamespace(
        rows=pd.DataFrame(rows),
        layers=pd.DataFrame(layers),
        reporting=_reporting(),
        run=_run(trace_path, hardware, times, len(layer_ids)),
        timeline=_timeline(policies[-1], prefetchers[-1], capacities[0][0]) if timeline else None,
    )


def _cell(policy: str, rank: int, prefetch: str, experts: int, layer: int, index: int) -> dict[str, Any]:
    accesses = 8000
    reach = experts / 1024
    hit = {"never": 0.0, "unbounded": 0.97}.get(policy, reach ** (0.35 + 0.06 * rank) * (1 - 0.02 * index))
    if prefetch != "none":
        hit = min(0.98, hit + 0.15)
    misses = round(accesses * (1 - hit))
    compulsory = min(misses, 64)
    late = round(0.1 * (misses - compulsory)) if prefetch != "none" else 0
    collision = round((misses - compulsory - late) * 0.4 * (rank % 3) / 2)
    return {
        "layer": layer, "accesses": accesses, "hits": accesses - misses, "misses": misses, "late": late,
        "collision": collision, "compulsory": compulsory, "capacity": misses - compulsory - late - collision,
    }  # fmt: skip


def _row(
    cells: list[dict[str, Any]], policy: str, experts: int, prefetch: str, times: bool
) -> dict[str, Any]:
    names = ("accesses", "hits", "misses", "late", "collision", "compulsory", "capacity")
    total = {name: sum(cell[name] for cell in cells) for name in names}
    moved = total["misses"] * 12_582_912
    issued = 3000 if prefetch != "none" else 0
    row = total | {
        "capacity_experts": experts, "capacity_bytes": experts * 12_582_912, "is_bound": policy in BOUNDS,
        "logical": total["accesses"] + 500, "hit_rate": total["hits"] / total["accesses"],
        "evictions": max(total["misses"] - experts, 0), "bytes_moved": moved, "prefetch_issued": issued,
        "prefetch_used": issued // 2, "prefetch_late": issued // 6, "prefetch_wasted": issued // 3,
        "prefetch_evicted_unused": issued // 10, "bypasses": 0, "waves": 0, "engine": "numba",
    }  # fmt: skip
    seconds = moved / 25e9 + 0.8
    for name, value in (
        ("ttft_s", seconds / 40), ("tpot_s", seconds / 500), ("makespan_s", seconds), ("compute_busy_s", 0.8),
        ("link_busy_s", moved / 25e9), ("stall_s", moved / 27e9),
    ):  # fmt: skip
        row[name] = value if times else math.nan
    return row


def _reporting() -> dict[str, Any]:
    return {
        "contract": "slots", "classification unit": "event, against the state at its start",
        "order inside an event": "ascending expert id; changes nothing", "scope": "global", "quota": None,
        "N": 64, "k": 8, "L": 16, "resident_share": 0.05, "union_mean": 8.0, "union_p95": 8.0, "r_mean": 2.5,
        "r_share_above_1": 1.0, "batch": 1, "scheduling": "unknown", "sharing": 1.0, "tie_seed": None,
        "decision_cost_s": {"lru": 0.0, "least-stale": 1.2e-6}, "admission_share": 0.03, "future_share": 0.97,
        "bytes_per_output_token": 812_000_000, "needed_bytes_per_s": 16_240_000_000,
    }  # fmt: skip


def _run(trace_path: str, hardware: str, times: bool, num_layers: int) -> dict[str, Any]:
    provenance = [
        {
            "name": "host link",
            "value": 25.2e9,
            "unit": "B/s",
            "kind": "measured",
            "source": "pcie bandwidth test",
        },
        {
            "name": "memory",
            "value": 1.008e12,
            "unit": "B/s",
            "kind": "datasheet",
            "source": "vendor's data sheet",
        },
        {
            "name": "link latency",
            "value": 1e-5,
            "unit": "s",
            "kind": "assumed",
            "source": "typical of PCIe 4",
        },
    ]
    return {
        "schema": 1, "kind": "replay", "version": "0.1.0",
        "trace": {
            "path": trace_path, "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "model": "OLMoE-1B-7B", "source": "captured with hooks", "licence": "Apache-2.0", "synthetic": False,
            "tokens": 8000, "layers": num_layers, "num_experts": 64, "top_k": 8, "sequences": None,
        },
        "model": {"name": "olmoe-1b-7b", "source": "config.json"} if times else None,
        "hardware": {"name": hardware, "source": "data sheet"} if times else None,
        "options": {"policies": ["lru", "fifo"], "prefetch": ["none"], "weights": "bf16", "warm": False, "seed": 0,
                    "batch": 1, "context": 4096, "contract": "slots", "scope": "global", "out": None},
        "costs": {"source": "roofline from the hardware sheet", "provenance": provenance} if times else None,
        "warnings": ["the trace does not say which tokens were prompt: all count as decode"],
        "sentence": "At 5 % of the experts LRU moves 1.9 times what the oracle must; least-stale saves a tenth.",
    }  # fmt: skip


def _timeline(
    policy: str, prefetch: str, capacity_label: str, passes: int = 4, layers: int = 8
) -> dict[str, Any]:
    """Compute, two copy engines and storage; each expert that is missing is read, copied, then computed."""
    events: list[dict[str, Any]] = []
    now, storage_free, copy_free = 0, 0, [0, 0]

    def add(
        lane: str, name: str, kind: str, start: int, end: int, step: int, layer: int, expert: int | None
    ) -> None:
        events.append({
            "lane": lane, "name": name, "kind": kind, "start_ns": start, "end_ns": end, "pass": step, "layer": layer,
            "expert": expert,
        })  # fmt: skip

    for step in range(passes):
        for layer in range(1, layers + 1):
            add("compute", f"layer {layer} before", "before", now, now + 60_000, step, layer, None)
            now += 60_000
            add("compute", "decision", "decision", now, now + 2_000, step, layer, None)
            now += 2_000
            add("compute", "expert 3", "resident", now, now + 30_000, step, layer, 3)
            ready = now
            now += 30_000
            for number in range(1 + (step + layer) % 3):
                engine = number % 2
                storage_free = max(storage_free, ready) + 50_000
                add(
                    "storage",
                    f"expert {number}",
                    "demand",
                    storage_free - 50_000,
                    storage_free,
                    step,
                    layer,
                    number,
                )
                begin = max(copy_free[engine], storage_free)
                copy_free[engine] = begin + 90_000
                kind = "prefetch" if number == 2 else "demand"
                add(f"copy {engine}", f"expert {number}", kind, begin, copy_free[engine], step, layer, number)
                if copy_free[engine] > now:
                    add("compute", "waiting", "stall", now, copy_free[engine], step, layer, number)
                    now = copy_free[engine]
                add("compute", f"expert {number}", "expert", now, now + 30_000, step, layer, number)
                now += 30_000
            add("compute", f"layer {layer} after", "after", now, now + 15_000, step, layer, None)
            now += 15_000
    return {"policy": policy, "prefetch": prefetch, "capacity_label": capacity_label, "events": events}
