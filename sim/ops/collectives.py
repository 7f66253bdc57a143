"""Traffic between devices: the usual collectives, and the dispatch and combine of expert parallelism.

`bytes` is what one rank sends over its links (case B16: what travels is activations, never the weight type).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ..formats import number_format
from ._work import Floats, Size, Work, number, stored_bytes, tidy

Kind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
_SHARES = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}
"""Times (P − 1)/P of the buffer: what a bandwidth-optimal algorithm sends per rank."""


@dataclass(frozen=True, slots=True)
class Collective:
    """`size_bytes` is the whole buffer: reduced, gathered (all ranks' parts together), or exchanged."""

    kind: Kind
    size_bytes: Size
    ranks: Size
    activations: str = "bf16"

    name: ClassVar[str] = "collective"

    @property
    def flops(self) -> Work:
        """A reduction adds each element of the buffer once per other rank's copy: (P − 1)/P of it on each rank."""
        elements = number(self.size_bytes) / (float(number_format(self.activations).bits) / 8)
        reduces = self.kind in ("all_reduce", "reduce_scatter")
        return tidy(elements * _others(self.ranks) if reduces else 0.0 * elements)

    @property
    def bytes(self) -> Work:
        return tidy(number(self.size_bytes) * _others(self.ranks) * _SHARES[self.kind])

    @property
    def arithmetic(self) -> str:
        return self.activations


@dataclass(frozen=True, slots=True)
class AllToAll:
    """Dispatch (or combine) of one rank's `tokens` to the experts of `ranks` ranks, uniform routing (DeepEP).

    `hidden` is the width that travels: ℓ in a latent mixture. `deduplicate`: one copy per token and rank, not per expert.
    """

    tokens: Size
    hidden: Size
    top_k: Size
    num_experts: Size
    ranks: Size
    phase: Literal["dispatch", "combine"] = "dispatch"
    activations: str = "bf16"
    deduplicate: bool = False

    name: ClassVar[str] = "all_to_all"

    @property
    def payload_bytes(self) -> Work:
        """All copies before locality: tokens × top-k × hidden × activation bytes (117,440,512 for 1024 × 8 × 7168 × 2)."""
        return tidy(stored_bytes(number(self.tokens) * self._copies * number(self.hidden), self.activations))

    @property
    def _copies(self) -> Floats:
        """Copies of one token: K, or with de-duplication the expected distinct ranks P (1 − (1 − 1/P)^K)."""
        K, P = number(self.top_k), number(self.ranks)
        return np.asarray(P * (1.0 - (1.0 - 1.0 / P) ** K)) if self.deduplicate else K

    @property
    def flops(self) -> Work:
        """The combine sums K rows per token (a multiplication and an addition each); the dispatch computes nothing."""
        sums = 2.0 * number(self.tokens) * number(self.top_k) * number(self.hidden)
        return tidy(sums if self.phase == "combine" else 0.0 * sums)

    @property
    def bytes(self) -> Work:
        """What leaves the rank: (P − 1)/P of the payload."""
        return tidy(number(self.payload_bytes) * _others(self.ranks))

    @property
    def arithmetic(self) -> str:
        return "bf16"


def _others(ranks: Size) -> Floats:
    P = number(ranks)
    return np.asarray((P - 1.0) / P)
