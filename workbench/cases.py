"""Which runs a replay consists of: every policy × prefetcher × capacity, and the bounds beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor
from typing import TypeVar

from ..errors import UsageError
from ..sim.cache.registry import POLICIES, Policy, policy
from ..sim.capacity_split import check_holds_one_token
from ..sim.prefetch.registry import Prefetcher, prefetcher
from .units import Capacity, parse_capacities

NO_PREFETCH = prefetcher("none")
_Found = TypeVar("_Found", Policy, Prefetcher)
ORACLES = ("belady-mandatory", "belady-bypass")


@dataclass(frozen=True, slots=True)
class CacheSize:
    """A capacity in whole experts, as the trace and the model turn a label into one."""

    label: str
    experts: int


@dataclass(frozen=True, slots=True)
class Case:
    """One run of a replay."""

    policy: Policy
    prefetch: Prefetcher
    size: CacheSize


def cache_sizes(
    labels: Sequence[str],
    *,
    num_layers: int,
    num_experts: int,
    top_k: int,
    scope: str,
    contract: str,
    expert_bytes: int | None,
    auto_experts: int | None,
) -> tuple[tuple[CacheSize, ...], tuple[str, ...]]:
    """Each label as whole experts, smallest first, and warnings. Raises `UsageError` for what cannot be.

    A share is of all routed experts of the trace's layers, floored. More than all experts is all experts, with
    a warning. Under `access`, whose accesses come one by one, a capacity below top-k is warned of, not refused.
    """
    everything = num_layers * num_experts
    sizes: dict[int, CacheSize] = {}
    warnings: list[str] = []
    for capacity in parse_capacities(labels):
        experts = _experts(capacity, everything, expert_bytes, auto_experts)
        if experts > everything:
            warnings.append(
                f"capacity {capacity.label} is {experts} experts, more than all {everything}: all are kept"
            )
            experts = everything
        if contract == "access" and experts >= 1:
            if experts < top_k:
                warnings.append(
                    f"capacity {capacity.label} holds {experts} experts, fewer than one token's top-k of {top_k}: "
                    f"a comparison of policies there is void"
                )
        else:
            check_holds_one_token(experts, num_layers, top_k, scope, capacity.label)
        if experts in sizes:
            warnings.append(
                f"capacity {capacity.label} is the same {experts} experts as {sizes[experts].label}: run once"
            )
        else:
            sizes[experts] = CacheSize(capacity.label, experts)
    return tuple(sizes[experts] for experts in sorted(sizes)), tuple(warnings)


def _experts(capacity: Capacity, everything: int, expert_bytes: int | None, auto_experts: int | None) -> int:
    if capacity.kind == "auto":
        if auto_experts is None:
            raise UsageError(
                "capacity auto is what a machine has left for experts: give --model and --hardware"
            )
        return auto_experts
    assert capacity.value is not None
    if capacity.kind == "share":
        return floor(capacity.value * everything)
    if capacity.kind == "experts":
        return int(capacity.value)
    if expert_bytes is None:
        raise UsageError(
            f"capacity {capacity.label} is in bytes, and only a model says how large an expert is: give --model"
        )
    return int(capacity.value) // expert_bytes


def all_cases(
    policies: Sequence[str], prefetch: Sequence[str], sizes: Sequence[CacheSize], everything: int
) -> tuple[Case, ...]:
    """Bounds first: `never` and `unbounded` once, the two oracles at each size, all without prefetch."""
    chosen = _distinct([policy(spec) for spec in policies], "policy")
    ahead = _distinct([prefetcher(spec) for spec in prefetch], "prefetcher")
    cases = [
        Case(POLICIES["never"], NO_PREFETCH, CacheSize("none", 0)),
        Case(POLICIES["unbounded"], NO_PREFETCH, CacheSize("all", everything)),
    ]
    cases += [Case(POLICIES[name], NO_PREFETCH, size) for size in sizes for name in ORACLES]
    cases += [
        Case(found, fetch, size)
        for size in sizes
        for fetch in ahead
        for found in chosen
        if not (found.is_bound and fetch.name == "none") and found.name not in ("never", "unbounded")
    ]
    return tuple(cases)


def _distinct(found: list[_Found], kind: str) -> list[_Found]:
    kept: dict[str, _Found] = {}
    for one in found:
        if one.spec in kept:
            raise UsageError(f"{kind} {one.spec!r} is given twice")
        kept[one.spec] = one
    if not kept:
        raise UsageError(f"no {kind} is given")
    return list(kept.values())
