"""What is done about a miss, by name: `load`, `host:when=always`, `lower:share=0.25`, `substitute:below=0.1`, `skip:below=0.05`.

`load` waits for the copy and changes nothing. `host` computes the expert where its weights are. The others change the
model's output: they are lossy, and a run says which share of the gate weight they touched.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ...errors import UsageError, unknown_name
from ..blocks import WEIGHT_UNIT
from . import miss_switch as switch
from .registry import parse_spec


@dataclass(frozen=True, slots=True)
class MissPolicy:
    """How misses are served. Never sees the clock: what it decides depends on the trace, the cache and the costs."""

    name: str
    code: int
    summary: str
    source: str
    is_lossy: bool = False
    needs_weights: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    """Setting → default, as text."""
    chosen: Mapping[str, str] = field(default_factory=dict)

    @property
    def spec(self) -> str:
        return self.name + "".join(
            f":{key}={value}" for key, value in self.chosen.items() if value != self.settings[key]
        )

    def setting(self, key: str) -> str:
        return self.chosen.get(key, self.settings[key])

    @property
    def limit(self) -> int:
        """The policy's threshold on gate weight, in units of `WEIGHT_UNIT`; 0 without one."""
        name = next((key for key in ("below", "above") if key in self.settings), None)
        return 0 if name is None else math.ceil(float(self.setting(name)) * WEIGHT_UNIT)


_LINEUP = (
    MissPolicy("load", switch.LOAD, "waits for the copy", "baseline"),
    MissPolicy(
        "host", switch.HOST, "computes on the host cores, where that is quicker than the copy (or always)",
        "Fiddler, arXiv 2402.07033; KTransformers; llama.cpp --n-cpu-moe", settings={"when": "cheaper"},
    ),
    MissPolicy(
        "lower", switch.LOWER, "fetches a lower-precision copy for an expert of little weight",
        "HOBBIT, arXiv 2411.01433", is_lossy=True, needs_weights=True, settings={"share": "0.25", "above": "0"},
    ),
    MissPolicy(
        "substitute", switch.SUBSTITUTE, "lets the resident expert that is most often used with it do the work",
        "BuddyMoE, arXiv 2511.10054", is_lossy=True, needs_weights=True, settings={"below": "1"},
    ),
    MissPolicy(
        "skip", switch.SKIP, "leaves out an expert of little weight", "score drop; HOBBIT, AdapMoE", is_lossy=True,
        needs_weights=True, settings={"below": "0.05"},
    ),
)  # fmt: skip

MISS_POLICIES: Mapping[str, MissPolicy] = MappingProxyType({found.name: found for found in _LINEUP})


def miss_policy(spec: str) -> MissPolicy:
    """The miss policy that a spec names. Raises `UsageError` naming the setting, its value and what is right."""
    name, chosen = parse_spec(spec)
    if name not in MISS_POLICIES:
        raise unknown_name("miss policy", name, MISS_POLICIES)
    found = MISS_POLICIES[name]
    for key, value in chosen.items():
        if key not in found.settings:
            raise unknown_name(f"setting of miss policy {name}", key, found.settings or ("none",))
        _check(name, key, value)
    return MissPolicy(
        name,
        found.code,
        found.summary,
        found.source,
        found.is_lossy,
        found.needs_weights,
        found.settings,
        chosen,
    )


def _check(name: str, key: str, value: str) -> None:
    if key == "when":
        if value not in ("cheaper", "always"):
            raise unknown_name(f"value of {name}:when", value, ("cheaper", "always"))
        return
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 <= number <= 1 or (key == "share" and number == 0):
        low = "above 0" if key == "share" else "from 0"
        raise UsageError(f"{name}:{key} must be a number {low} to 1, got {value!r}")
