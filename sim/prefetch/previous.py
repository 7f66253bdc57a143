"""Previous token's experts: what a sequence used at the coming layer one pass ago, it may use again."""

from __future__ import annotations

from typing import Any

from ..compiled import called
from .request import close, want


@called
def propose(block: Any, low: int, high: int, layer: int, num_experts: int, ahead: int, wanted: Any) -> None:
    """Beyond the last layer the target is the next pass, whose previous token is the present one."""
    layers = block.experts.shape[1]
    is_next_pass = layer + ahead >= layers
    target = (layer + ahead) % layers
    for column in range(block.experts.shape[2]):
        for row in range(low, high):
            if is_next_pass:
                expert = block.experts[row, target, column] if block.last_of_run[row] else -1
            else:
                expert = block.previous[row, target, column]
            if expert >= 0:
                want(wanted, target * num_experts + expert)
    close(wanted, is_next_pass)
