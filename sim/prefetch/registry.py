"""The prefetchers by name, with their settings: `gate:ahead=2:top=4`, `noisy:recall=0.8:precision=0.5`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError, unknown_name
from ..cache.registry import parse_spec
from . import switch

_UNLIMITED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Prefetcher:
    """Runs ahead of the router within a byte budget. Never sees the clock."""

    name: str
    code: int
    summary: str
    source: str
    needs: str = ""
    """What the trace must hold: "" nothing, "predicted" the gate's guesses, "previous" or "future" its own ids,
    "history" its own ids of events that have been."""
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
    def ahead(self) -> int:
        return int(self.setting("ahead")) if "ahead" in self.settings else 0

    @property
    def looks_at_each(self) -> bool:
        """Names experts of all layers up to `ahead`, not only of that one."""
        return "layers" in self.settings and self.setting("layers") == "each"

    def whole_parameters(self, seed: int) -> NDArray[np.int64]:
        top = self.setting("top") if "top" in self.settings else "all"
        most = {"all": _UNLIMITED, "same": 0}.get(top)
        return np.array([self.ahead, int(top) if most is None else most, seed, self.looks_at_each], np.int64)

    def real_parameters(self) -> NDArray[np.float64]:
        names = ("score", "recall", "precision")
        return np.array([float(self.setting(name)) if name in self.settings else 0.0 for name in names])


_LINEUP = (
    Prefetcher("none", switch.NONE, "fetches nothing ahead", "baseline"),
    Prefetcher(
        "gate", switch.GATE, "the coming layer's gate on the present hidden state", "arXiv 2312.17238, SpecMD",
        needs="predicted", settings={"ahead": "1", "top": "all", "score": "0", "layers": "one"},
    ),
    Prefetcher(
        "previous", switch.PREVIOUS, "the experts the sequence used there one pass ago", "textbook",
        needs="previous", settings={"ahead": "1"},
    ),
    Prefetcher(
        "coactivation", switch.COACTIVATION, "the experts that most often followed the present ones so far", "Markov chain",
        needs="history", settings={"ahead": "1", "top": "same"},
    ),
    Prefetcher(
        "hot", switch.HOT, "the coming layer's most used experts so far", "textbook",
        needs="history", settings={"ahead": "1", "top": "same"},
    ),
    Prefetcher(
        "activation", switch.ACTIVATION, "what the likest sequence that has ended used there", "MoE-Infinity, arXiv 2401.14361",
        needs="history", settings={"ahead": "1", "top": "same"},
    ),
    Prefetcher(
        "map", switch.MAP, "what the earlier pass that began like this one used there", "fMoE, arXiv 2502.05370",
        needs="history", settings={"ahead": "1", "top": "same"},
    ),
    Prefetcher(
        "perfect", switch.PERFECT, "the truth (a bound, not a method)", "oracle", needs="future", settings={"ahead": "1"}
    ),
    Prefetcher(
        "noisy", switch.NOISY, "a predictor of given recall and precision", "parametrised oracle",
        needs="future", settings={"ahead": "1", "recall": "0.8", "precision": "0.8"},
    ),
)  # fmt: skip

PREFETCHERS: Mapping[str, Prefetcher] = MappingProxyType({found.name: found for found in _LINEUP})


def prefetcher(spec: str) -> Prefetcher:
    """The prefetcher that a spec names. Raises `UsageError` naming the setting, its value and what is right."""
    name, chosen = parse_spec(spec)
    if name not in PREFETCHERS:
        raise unknown_name("prefetcher", name, PREFETCHERS)
    found = PREFETCHERS[name]
    for key, value in chosen.items():
        if key not in found.settings:
            raise unknown_name(f"setting of prefetcher {name}", key, found.settings or ("none",))
        _check(name, key, value)
    return Prefetcher(name, found.code, found.summary, found.source, found.needs, found.settings, chosen)


def _check(name: str, key: str, value: str) -> None:
    if key == "layers":
        if value not in ("one", "each"):
            raise unknown_name(f"value of {name}:layers", value, ("one", "each"))
        return
    if key in ("ahead", "top"):
        word = PREFETCHERS[name].settings[key] if key == "top" else ""
        if not (value.isdecimal() and int(value) >= 1) and not (word and value == word):
            raise UsageError(
                f"{name}:{key} must be a whole number of at least 1{word and f' or {word}'}, got {value!r}"
            )
        return
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    low_is_open = key == "precision"
    if not (0 <= number <= 1) or (low_is_open and number == 0):
        raise UsageError(
            f"{name}:{key} must be a number {'above 0' if low_is_open else 'from 0'} to 1, got {value!r}"
        )
