"""Two published findings, looked for in traces at hand: contracts that inflate misses, and collisions under Least-Stale.

    python benchmarks/findings.py

1. `access` against `slots` on the repository's real trace at batch 8, one quota a layer, 40 % of the experts (published for
   Qwen3-30B-A3B, arXiv 2608.07911: LRU +27 %, LFU +3 %, static 0).
2. Least-Stale against LRU at 5 % capacity in one pool, with and without gate prefetching (of two guesses a token, so that
   a pool of 51 holds what is fetched), on an OLMoE-shaped *synthetic* trace (SpecMD, arXiv 2602.03921: up to 85 × fewer
   collisions); and the same on the repository's trace at 15 %.
"""

from __future__ import annotations

import json

import codesign
import numpy as np

POLICIES = ("lru", "lfu", "lfru", "least-stale", "fifo", "static")


def main() -> None:
    figures = {**inflation(), **collisions()}
    print(json.dumps({"name": "findings", "figures": figures}))


def inflation() -> dict[str, float]:
    misses: dict[str, dict[str, float]] = {}
    for contract in ("slots", "access"):
        rows = codesign.replay(
            codesign.bundled_trace_path(), policies=POLICIES, capacities=("40%",), scope="layer", contract=contract, batch=8
        ).rows
        own = rows[~rows["is_bound"]]
        misses[contract] = dict(zip(own["policy"], own["misses"] / own["accesses"], strict=True))
    print("miss fraction at batch 8, 40 %, a quota for each layer\npolicy            slots    access   inflated by")
    figures = {}
    for name in POLICIES:
        slots, access = misses["slots"][name], misses["access"][name]
        figures[f"inflation_{name}"] = round(access / slots - 1, 4)
        print(f"{name:14}{slots:9.2%}{access:10.2%}{access / slots - 1:+13.1%}")
    order = {contract: sorted(found, key=lambda name: found[name]) for contract, found in misses.items()}
    print(f"ranking under slots:  {', '.join(order['slots'])}\nranking under access: {', '.join(order['access'])}")
    return figures


def collisions() -> dict[str, float]:
    synthetic = codesign.synthesise(
        num_tokens=1500, num_layers=16, num_experts=64, top_k=8, reuse=0.35, skew=0.5, guess_recall=0.8, guesses=8,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    figures = {}
    for name, trace, capacity in (
        ("olmoe_shaped", synthetic, "5%"),
        ("repository", codesign.read_trace(codesign.bundled_trace_path()), "15%"),
    ):
        rows = codesign.replay(
            trace, policies=("lru", "least-stale"), prefetch=("none", "gate:top=2"), capacities=(capacity,)
        ).rows
        for fetch in ("none", "gate:top=2"):
            of = {row["policy"]: row for row in rows[rows["prefetch"] == fetch].to_dict("records") if not row["is_bound"]}
            lru, stale = of["lru"], of["least-stale"]
            factor = lru["collision"] / stale["collision"] if stale["collision"] else None
            print(
                f"{name} at {capacity}, prefetch {fetch}: collisions {lru['collision']:,} (LRU) against "
                f"{stale['collision']:,} (Least-Stale), {'none left' if factor is None else f'{factor:.2f} ×'}; "
                f"hits {lru['hit_rate']:.1%} against {stale['hit_rate']:.1%}"
            )
            if factor is not None:
                figures[f"collisions_{name}_{fetch.partition(':')[0]}_x"] = round(factor, 2)
    return figures


if __name__ == "__main__":
    main()
