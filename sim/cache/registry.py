"""The line-up: every cache policy by name, with what it needs and what bounds it.

A policy is chosen by a spec such as `lru`, `least-stale:order=distance` or `static:fit=first-half`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ...errors import UsageError, unknown_name
from . import least_stale, switch, switch_called


@dataclass(frozen=True, slots=True)
class Policy:
    """One eviction (and admission) policy. Frozen; what it learns lives in `CacheState`."""

    name: str
    code: int
    summary: str
    source: str
    needs: str = ""
    """What it must be told of the past: "" nothing, "weights" the gate's, "sequences" which token belongs to which."""
    needs_future: bool = False
    may_bypass: bool = False
    is_bound: bool = False
    settings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Setting → its allowed values, the default first."""
    chosen: Mapping[str, str] = field(default_factory=dict)

    @property
    def spec(self) -> str:
        """The policy as a user writes it, settings that differ from their defaults included."""
        extra = [f":{key}={value}" for key, value in self.chosen.items() if value != self.settings[key][0]]
        return self.name + "".join(extra)

    def setting(self, key: str) -> str:
        return self.chosen.get(key, self.settings[key][0])

    @property
    def parameters(self) -> tuple[int, ...]:
        """The settings as the integers that the compiled functions read."""
        if self.code != switch.LEAST_STALE:
            return ()
        values = [0, 0]
        values[least_stale.SIDES] = int(self.setting("sides") == "true")
        values[least_stale.DISTANCE] = int(self.setting("order") == "distance")
        return tuple(values)


_LINEUP = (
    Policy("never", switch.NEVER, "keeps nothing: every use is a copy", "lower bound of hits", may_bypass=True, is_bound=True),
    Policy("unbounded", switch.UNBOUNDED, "keeps everything: only first uses are copies", "upper bound of hits", is_bound=True),
    Policy(
        "belady-mandatory", switch.BELADY, "farthest next use goes; a missed expert must be admitted",
        "Belady 1966; evict-then-insert", needs_future=True, is_bound=True,
    ),
    Policy(
        "belady-bypass", switch.BELADY_BYPASS, "farthest next use goes; a missed expert may be streamed through",
        "Belady 1966; insert-then-evict", needs_future=True, may_bypass=True, is_bound=True,
    ),
    Policy("fifo", switch.FIFO, "earliest brought in goes", "textbook"),
    Policy("lru", switch.LRU, "least recently used goes", "textbook"),
    Policy("lfu", switch.LFU, "fewest uses since brought in goes", "textbook, in-cache counts"),
    Policy("lfru", switch.LFRU, "smallest uses ÷ age goes", "arXiv 2608.07911"),
    Policy("clock", switch.CLOCK, "second chance", "Corbató 1968"),
    Policy("sieve", switch.SIEVE, "lazy promotion, quick demotion", "Zhang et al., NSDI 2024"),
    Policy("s3-fifo", switch_called.S3_FIFO, "a small queue lets through who is used there", "Yang et al., SOSP 2023"),
    Policy("2q", switch_called.TWO_QUEUE, "first uses wait apart, returns join an LRU", "Johnson and Shasha, VLDB 1994"),
    Policy("slru", switch_called.SLRU, "probation goes before protected", "Karedla et al. 1994"),
    Policy("arc", switch_called.ARC, "recency and frequency lists, shares set by their ghosts", "Megiddo and Modha, FAST 2003"),
    Policy("lirs", switch_called.LIRS, "who was used twice in a short time stays", "Jiang and Zhang, SIGMETRICS 2002"),
    Policy("lfuda", switch_called.LFUDA, "fewest uses goes, old uses fade", "Arlitt et al. 2000"),
    Policy("gdsf", switch_called.GDSF, "fewest uses ÷ size goes, old uses fade", "Cherkasova 1998"),
    Policy("w-tinylfu", switch_called.W_TINYLFU, "a window, then use counts decide", "Einziger et al. 2017"),
    Policy(
        "score", switch_called.SCORE, "least gate weight lately goes", "score-aware eviction, SpecMD, arXiv 2602.03921",
        needs="weights",
    ),
    Policy("lhu", switch_called.LHU, "fewest uses that mattered goes", "HOBBIT, arXiv 2411.01433", needs="weights"),
    Policy(
        "hobbit", switch_called.HOBBIT, "recency, frequency, weight and layer distance, summed: the least goes",
        "HOBBIT, arXiv 2411.01433", needs="weights",
    ),
    Policy(
        "activation", switch_called.ACTIVATION, "what the running sequences used least goes, late layers first",
        "MoE-Infinity, arXiv 2401.14361", needs="sequences",
    ),
    Policy("random", switch.RANDOM, "any entry goes", "textbook"),
    Policy(
        "least-stale", switch.LEAST_STALE, "stale before current, passed layers before coming ones",
        "SpecMD, arXiv 2602.03921", settings={"order": ("fifo", "distance"), "sides": ("true", "false")},
    ),
    Policy(
        "static", switch.STATIC, "a fixed hot set, loaded once; everything else is streamed",
        "textbook; fitted by use counts", may_bypass=True, settings={"fit": ("all", "first-half", "train")},
    ),
)  # fmt: skip

POLICIES: Mapping[str, Policy] = MappingProxyType({policy.name: policy for policy in _LINEUP})


def parse_spec(spec: str) -> tuple[str, dict[str, str]]:
    """Split `name:key=value:…`. Raises `UsageError` for a piece without `=` or a key given twice."""
    name, *pieces = spec.strip().split(":")
    chosen: dict[str, str] = {}
    for piece in pieces:
        key, equals, value = piece.partition("=")
        if not equals or not key or not value:
            raise UsageError(f"{spec!r}: expected key=value after ':', got {piece!r}")
        if key in chosen:
            raise UsageError(f"{spec!r}: {key!r} is given twice")
        chosen[key] = value
    return name, chosen


def policy(spec: str) -> Policy:
    """The policy that a spec names. Raises `UsageError` naming the nearest known name, setting or value."""
    name, chosen = parse_spec(spec)
    if name not in POLICIES:
        raise unknown_name("policy", name, POLICIES)
    found = POLICIES[name]
    for key, value in chosen.items():
        if key not in found.settings:
            raise unknown_name(f"setting of policy {name}", key, found.settings or ("none",))
        if value not in found.settings[key]:
            raise unknown_name(f"value of {name}:{key}", value, found.settings[key])
    return replace(found, chosen=chosen)
