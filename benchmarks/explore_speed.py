"""How many designs a second `workbench explore` costs at three operating points, on measured prices and on a sheet's.

    python benchmarks/explore_speed.py

Bar: 100,000 designs at three points in under 60 s. The peer in the same run is the same question asked design by design,
each as a whole model, on a sample of them: what a loop over `design_costs` of one model takes. Both give the same times.
"""

from __future__ import annotations

import time

import numpy as np
from codesign.sim.catalog import load_model
from codesign.sim.designs import Designs, Layout, OperatingPoint, design_costs
from codesign.workbench.explore_costs import prices_of
from codesign.workbench.explore_space import grid_space
from codesign.workbench.explore_study import Axes, Machine

AXES = Axes(
    transform=("standard", "latent-efficiency", "latent-accuracy"), alpha=(1.0, 2.0, 4.0, 8.0),
    experts=(32, 48, 64, 96, 128, 160, 192, 256), top_k=(1, 2, 3, 4, 5, 6, 7, 8, 10),
    width=(512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2304, 2560, 2688, 3072, 3584, 4096), latent=(0,),
    shared=(0, 1344, 2688, 4032, 5376), layers=(44, 60, 72, 88),
)  # fmt: skip
POINTS = [
    OperatingPoint(f"batch {batch}", batch, 4096, weights="fp8", layout=Layout(1, 8, 8)) for batch in (8, 64, 512)
]
SAMPLE = 60


def main() -> None:
    base = load_model("nemotron-3-super")
    for machine in (
        Machine(hardware="h200-sxm", profile="h200-sxm-trtllm"),
        Machine(hardware="h200-sxm"),
    ):
        priced = prices_of(machine)
        design_costs(Designs.of([base]), POINTS[0], priced.prices)  # compiles, and loads the profile
        started = time.perf_counter()
        space = grid_space(base, AXES)
        designs = space.designs
        found = []
        for first in range(0, len(designs), 8192):
            block = designs.take(np.arange(first, min(first + 8192, len(designs))))
            found.append([design_costs(block, point, priced.prices).seconds for point in POINTS])
        whole = time.perf_counter() - started
        seconds = np.concatenate(found, axis=1)
        rows = np.random.default_rng(0).choice(len(designs), SAMPLE, replace=False)
        started = time.perf_counter()
        alone = [
            [design_costs(Designs.of([designs.spec(row)]), p, priced.prices).seconds[0] for p in POINTS] for row in rows
        ]
        each = (time.perf_counter() - started) / SAMPLE
        difference = np.abs(np.array(alone).T / seconds[:, rows] - 1.0).max()
        print(
            f"{machine.name}: {len(designs):,} designs × {len(POINTS)} points in {whole:.1f} s, "
            f"{len(designs) / whole:,.0f} designs/s; {each * len(designs) / whole:,.0f}× one by one; "
            f"largest difference {difference:.1e}; 100,000 in {1e5 * whole / len(designs):.1f} s (bar 60 s)"
        )


if __name__ == "__main__":
    main()
