"""How firm an exploration's answer is: a design over batches, where its bound changes, and on a device link twice as fast.

Everything is costed afresh with the machine's own prices, at operating points that differ from the study's in one number.
A row of None stands for the base.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from ..errors import UsageError, unknown_name
from ..sim.designs import DesignCosts, Designs, OperatingPoint, design_costs
from ..sim.designs.costs import OF_MIXTURE, PARTS, memory_bytes
from ..sim.roofline import RooflinePrices
from .explore import ExploreResult
from .explore_costs import Priced, accuracy_columns, costed, prices_of

MOST_BATCH = 4096
_OVER_THE_LINK = ("dispatch", "combine", "all-reduce")
_MOST_SEQUENCES = 2**20


class BatchRow(NamedTuple):
    """A design at one batch of an operating point. Seconds of one pass, with the 90 % band."""

    batch: int
    seconds: float
    low: float
    high: float
    bound: str
    """What most of the pass waits for, of `sim.designs.costs.BOUNDS`."""
    mixture_bound: str
    """The same of the parts of the mixture alone."""
    measured: float
    """Share of the time that stands on a profile."""
    extrapolated: bool
    """Some part lies beyond what the profile measured."""
    fits: bool
    """Whether weights and KV cache fit the device."""


class Crossover(NamedTuple):
    """`batch` is the smallest at which `after` reigns, where `before` did at dp sequences less."""

    batch: int
    before: str
    after: str
    seconds: float
    """Of a pass at that batch."""


class LinkRow(NamedTuple):
    """One operating point on the machine as it is, and with twice the bytes/s between devices (same latency)."""

    point: str
    seconds: float
    faster: float | None
    """None: cannot be said, see `note`."""
    note: str

    @property
    def change(self) -> float | None:
        """Of the time, as a share: −0.05 is five per cent less."""
        return None if self.faster is None else self.faster / self.seconds - 1.0


def batch_curve(
    result: ExploreResult, machine: str, row: int | None, point_name: str, batches: Sequence[int] | None = None,
    priced: Priced | None = None,
) -> list[BatchRow]:  # fmt: skip
    """The design of a row at other batches of an operating point: powers of two to 4096, or those given that its dp divides.

    `priced` spares loading the machine's profile again. Raises `UsageError` for a layout that does not fit the design.
    """
    designs, point, found = _asked(result, machine, row, point_name, priced)
    usable = found.prices.hardware.usable_bytes
    rows = []
    for batch in _possible(point, batches):
        costs = design_costs(designs, replace(point, batch=batch), found.prices)
        rows.append(
            BatchRow(
                batch, float(costs.seconds[0]), float(costs.low[0]), float(costs.high[0]), str(costs.bound_by()[0]),
                str(costs.bound_by(OF_MIXTURE)[0]), float(costs.measured_share[0]), bool(costs.extrapolated[0]),
                bool(costs.memory_bytes[0] <= usable),
            )
        )  # fmt: skip
    return rows


def crossovers(
    result: ExploreResult, machine: str, row: int | None, point_name: str, batches: Sequence[int] | None = None,
    priced: Priced | None = None, of: Sequence[str] = PARTS,
) -> list[Crossover]:  # fmt: skip
    """The batches at which the bound of the parts `of` changes, exact to one sequence a replica.

    Between two batches with the same bound nothing is looked for: a bound that reigns only between them stays unseen.
    """
    designs, point, found = _asked(result, machine, row, point_name, priced)
    known: dict[int, DesignCosts] = {}

    def bound(share: int) -> str:
        if share not in known:
            known[share] = design_costs(designs, replace(point, batch=share * point.layout.dp), found.prices)
        return str(known[share].bound_by(of)[0])

    shares = [batch // point.layout.dp for batch in _possible(point, batches)]
    return [
        Crossover(share * point.layout.dp, before, after, float(known[share].seconds[0]))
        for low, high in pairwise(shares)
        for share, before, after in _changes(bound, low, high)
    ]


def _changes(bound: Callable[[int], str], low: int, high: int) -> Iterator[tuple[int, str, str]]:
    """Bisection; where a third bound lies between, it goes on behind the first change."""
    while bound(low) != bound(high):
        before, after = low, high
        while after - before > 1:
            middle = (before + after) // 2
            before, after = (middle, after) if bound(middle) == bound(low) else (before, middle)
        yield after, bound(before), bound(after)
        low = after


def most_that_fit(
    result: ExploreResult, machine: str, row: int | None, point_name: str, priced: Priced | None = None
) -> int | None:
    """The largest batch whose weights and KV cache fit a device, of at most 2²⁰; None where not even one sequence a replica
    does."""
    designs, point, found = _asked(result, machine, row, point_name, priced)
    usable, dp = found.prices.hardware.usable_bytes, point.layout.dp

    def fits(share: int) -> bool:
        return bool(memory_bytes(designs, replace(point, batch=share * dp))[0] <= usable)

    if not fits(1):
        return None
    low, high = 1, _MOST_SEQUENCES // dp + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low * dp


def link_twice(
    result: ExploreResult, machine: str, row: int | None, priced: Priced | None = None
) -> list[LinkRow]:
    """Every operating point of the study with twice the bandwidth between devices. A profile that measured the traffic
    knows its own link alone: then there is no answer."""
    rows = []
    for name in (point.name for point in result.points):
        designs, point, found = _asked(result, machine, row, name, priced)
        before = design_costs(designs, point, found.prices)
        seconds = float(before.seconds[0])
        if point.layout.devices == 1:
            rows.append(LinkRow(name, seconds, seconds, "one device: nothing goes over a link"))
        elif any(before.parts[part].measured[0] > 0 for part in _OVER_THE_LINK):
            rows.append(LinkRow(name, seconds, None, "the profile measured this traffic on its own link"))
        else:
            after = design_costs(designs, point, _with_faster_link(found.prices))
            rows.append(LinkRow(name, seconds, float(after.seconds[0]), ""))
    return rows


def _with_faster_link(prices: RooflinePrices) -> RooflinePrices:
    """A copy: the prices' own notes of what they used stay as they are."""
    link = prices.hardware.device_link
    if link is None:
        raise UsageError(f"hardware {prices.hardware.name} states no [device_link]: several devices need one")
    twice = replace(link.bandwidth, value=2.0 * link.bandwidth.value)
    made = copy.copy(prices)
    made.used = dict(prices.used)
    made.hardware = replace(prices.hardware, device_link=replace(link, bandwidth=twice))
    return made


def base_values(result: ExploreResult, machine: str, priced: Priced | None = None) -> dict[str, Any]:
    """The base as one row of the tables of designs and costs; an accuracy that its law refuses is absent.

    Raises `UsageError` where a point's layout does not fit it.
    """
    designs = Designs.of([result.base])
    found = priced or prices_of(_machine(result, machine))
    shape = {name: values[0] for name, values in designs.columns().items()}
    guessed = {}
    with suppress(UsageError):
        guessed = {name: values[0] for name, values in accuracy_columns(result.study, designs).items()}
    costs = costed(designs, result.points, found, result.study)
    return {**shape, **guessed, **{str(name): value for name, value in costs.iloc[0].items()}}


def _asked(
    result: ExploreResult, machine: str, row: int | None, point_name: str, priced: Priced | None
) -> tuple[Designs, OperatingPoint, Priced]:
    designs = Designs.of([result.base if row is None else result.spec(row)])
    point = next((one for one in result.points if one.name == point_name), None)
    if point is None:
        raise unknown_name("operating point", point_name, [one.name for one in result.points])
    return designs, point, priced or prices_of(_machine(result, machine))


def _machine(result: ExploreResult, name: str) -> Any:
    return next(machine for machine in result.study.machines if machine.name == name)


def _possible(point: OperatingPoint, batches: Sequence[int] | None) -> list[int]:
    """Batches that can be dealt out over the replicas. Without a wish dp, 2·dp, 4·dp, …"""
    dp = point.layout.dp
    if batches is None:
        return [dp << power for power in range(MOST_BATCH.bit_length()) if dp << power <= MOST_BATCH]
    return [batch for batch in batches if batch % dp == 0]
