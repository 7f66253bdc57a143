"""From a prefetcher's integer code to its compiled function."""

from __future__ import annotations

from typing import Any

from ..compiled import called
from . import activation, expert_map, history, oracle, previous
from .parameters import AHEAD, PRECISION, RECALL, SEED, TOP
from .request import FIRST_NEXT_PASS, MANY

NONE, GATE, PREVIOUS, PERFECT, NOISY, COACTIVATION, HOT, ACTIVATION, MAP = range(9)


@called
def propose(
    code: int, whole: Any, real: Any, past: Any, sequences: Any, maps: Any, block: Any, index: int, layer: int,
    num_experts: int, wanted: Any,
) -> None:  # fmt: skip
    """Ask a prefetcher, at layer `layer` of the block's pass `index`, whom it wants; the answer is in `wanted`.

    `gate`, the one that most machines have, is part of the loop itself (`sim/engines/counting.py`).
    """
    wanted.size[MANY] = 0
    wanted.size[FIRST_NEXT_PASS] = 0
    low, high = block.start[index], block.start[index + 1]
    if code == PREVIOUS:
        previous.propose(block, low, high, layer, num_experts, whole[AHEAD], wanted)
    elif code == PERFECT:
        oracle.propose(block, index, layer, num_experts, whole[AHEAD], 1.0, 1.0, 0, wanted)
    elif code == NOISY:
        oracle.propose(
            block, index, layer, num_experts, whole[AHEAD], real[RECALL], real[PRECISION], whole[SEED], wanted
        )
    elif code in (COACTIVATION, HOT):
        history.propose(
            past, block, low, high, layer, num_experts, whole[AHEAD], whole[TOP], code == COACTIVATION, wanted
        )
    elif code == ACTIVATION:
        activation.propose(sequences, block, low, high, layer, num_experts, whole[AHEAD], whole[TOP], wanted)
    elif code == MAP:
        expert_map.propose(maps, block, low, high, layer, num_experts, whole[AHEAD], whole[TOP], wanted)
