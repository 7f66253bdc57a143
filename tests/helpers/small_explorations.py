"""Small studies of designs for tests: some dozens of designs, costed in a second."""

from __future__ import annotations

from pathlib import Path

from codesign.workbench.explore import ExploreResult, explore

MACHINES = """\
[[machines]]
hardware = "h200-sxm"
profile = "h200-sxm-sglang"
[[machines]]
hardware = "b200"
"""
POINTS = """\
[[points]]
name = "interactive"
batch = 8
context = 4096
ep = 8
dp = 8
[[points]]
name = "bulk"
batch = 512
context = 4096
ep = 8
dp = 8
"""
TEXT = """\
name = {name}
base = "nemotron-3-super"
[axes]
transform = ["standard", "latent-accuracy"]
alpha = [1, 4]
experts = [64, 128]
top_k = [2, 6]
width = [1344, 2688]
latent = [0]
shared = [0, 5376]
{machines}{points}
[limits]
max_total_params = 100e9
[objectives]
{objectives}
"""
THREE = 'minimise = ["latency:interactive", "latency:bulk"]\nmaximise = ["total_params"]'


def explored(
    folder: Path, *, name: str = '"small"', machines: str = MACHINES, points: str = POINTS, objectives: str = THREE
) -> ExploreResult:
    """The study with other parts, explored. `name` is a TOML string, quotes included."""
    path = folder / "study.toml"
    path.write_text(TEXT.format(name=name, machines=machines, points=points, objectives=objectives), encoding="utf-8")
    return explore(path)
