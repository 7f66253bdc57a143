"""Where designs are compared: a phase, a batch, a context, number formats, how experts are loaded, a parallel layout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...errors import UsageError
from ..formats import number_format
from ..ops.loads import exponent_of
from ..pass_sizes import PassSizes


@dataclass(frozen=True, slots=True)
class Layout:
    """Attention runs on `tp` ranks in `dp` replicas; all tp·dp devices share the experts: `ep` groups of whole experts,
    each expert cut into tp·dp/ep columns."""

    tp: int = 1
    ep: int = 1
    dp: int = 1

    def __post_init__(self) -> None:
        for name in ("tp", "ep", "dp"):
            value = getattr(self, name)
            if not 1 <= value <= 4096:
                raise UsageError(f"layout: {name} must be from 1 to 4096, got {value}")
        if self.devices % self.ep:
            raise UsageError(
                f"layout: ep = {self.ep} does not divide tp·dp = {self.tp}·{self.dp} = {self.devices} devices"
            )

    @property
    def devices(self) -> int:
        return self.tp * self.dp

    @property
    def expert_tp(self) -> int:
        """Ranks that share one expert's columns."""
        return self.devices // self.ep

    def text(self) -> str:
        return f"TP{self.tp} EP{self.ep} DP{self.dp}"


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """One pass: decode brings one token a sequence after `context` cached ones, prefill `context` new ones.

    `batch` counts sequences over all replicas. `load` is a distribution of `sim.ops.loads`. `deduplicate`: dispatch sends
    one copy per token and rank instead of one per expert.
    """

    name: str
    batch: int
    context: int
    phase: Literal["decode", "prefill"] = "decode"
    weights: str = "bf16"
    resident_weights: str = "bf16"
    activations: str = "bf16"
    load: str = "uniform"
    layout: Layout = Layout()
    deduplicate: bool = False
    dispatch: str = "fp8"
    """Format in which dispatched tokens travel; DeepEP's default. What is combined travels as `activations`."""

    def __post_init__(self) -> None:
        for name in ("batch", "context"):
            value = getattr(self, name)
            if not 1 <= value <= 2**24:
                raise UsageError(f"operating point {self.name}: {name} must be from 1 to 2²⁴, got {value}")
        if self.batch % self.layout.dp:
            raise UsageError(
                f"operating point {self.name}: a batch of {self.batch} cannot be dealt out over dp = {self.layout.dp} replicas"
            )
        for form in (self.weights, self.resident_weights, self.activations, self.dispatch):
            number_format(form)
        exponent_of(self.load)

    @property
    def tokens(self) -> int:
        """Of one pass, over all replicas."""
        return self.batch * (1 if self.phase == "decode" else self.context)

    @property
    def tokens_of_replica(self) -> int:
        return self.tokens // self.layout.dp

    def pass_sizes(self) -> PassSizes:
        """Of one replica's pass, as the prices of mixers take it."""
        sequences, new = self.batch // self.layout.dp, 1 if self.phase == "decode" else self.context
        attended = self.context if self.phase == "decode" else self.context * (self.context + 1) / 2
        count = np.array([sequences * new], np.int64)
        return PassSizes(count, np.array([int(sequences * attended)], np.int64), np.array([sequences], np.int64))
