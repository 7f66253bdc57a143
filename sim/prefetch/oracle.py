"""Prefetchers that look at the truth: `perfect`, and `noisy` with a stated recall and precision.

They bound and parametrise what a real predictor can bring. `noisy` names each expert that will be used with
probability `recall`, and adds experts that will not be used so that `precision` of its guesses are right on
average; which ones depends only on the seed, the pass, the layer and the expert.
"""

from __future__ import annotations

from typing import Any

from ..compiled import called
from .request import MANY, close, shuffled_bits, want


@called
def propose(
    block: Any,
    index: int,
    layer: int,
    num_experts: int,
    ahead: int,
    recall: float,
    precision: float,
    seed: int,
    wanted: Any,
) -> None:
    """`index` is the pass inside the block. At the end of the trace there is nothing to look at."""
    layers = block.experts.shape[1]
    is_next_pass = layer + ahead >= layers
    target = (layer + ahead) % layers
    if is_next_pass:
        index += 1
    if index + 1 >= block.start.shape[0]:
        return
    pass_number = block.first_pass + index
    right = 0
    for row in range(block.start[index], block.start[index + 1]):
        for column in range(block.experts.shape[2]):
            expert = block.experts[row, target, column]
            x = target * num_experts + expert
            if expert >= 0 and wanted.seen[x] == 0:
                if recall >= 1.0 or shuffled_bits(seed, pass_number, target, expert) < recall:
                    want(wanted, x)
                    right += 1
                else:
                    wanted.seen[x] = 2  # used, but not to be guessed: no wrong guess either
    if precision < 1.0 and right > 0:
        _add_wrong_guesses(target, num_experts, right, precision, seed, pass_number, wanted)
    for expert in range(num_experts):
        if wanted.seen[target * num_experts + expert] == 2:
            wanted.seen[target * num_experts + expert] = 0
    close(wanted, is_next_pass)


@called
def _add_wrong_guesses(
    target: int, num_experts: int, right: int, precision: float, seed: int, pass_number: int, wanted: Any
) -> None:
    """Insert wrong guesses at drawn places among the right ones, so that a byte budget cuts both alike."""
    expected = right * (1.0 - precision) / precision
    wrong = int(expected)
    if shuffled_bits(seed + 1, pass_number, target, num_experts) < expected - wrong:
        wrong += 1
    start = int(shuffled_bits(seed + 2, pass_number, target, num_experts) * num_experts)
    stride = _coprime_stride(num_experts, shuffled_bits(seed + 3, pass_number, target, num_experts))
    for step in range(num_experts):
        if wrong == 0:
            return
        expert = (start + step * stride) % num_experts
        x = target * num_experts + expert
        if wanted.seen[x] == 0:
            want(wanted, x)
            last = wanted.size[MANY] - 1
            place = int(shuffled_bits(seed + 4, pass_number, target, expert) * (last + 1))
            wanted.expert[last], wanted.expert[place] = wanted.expert[place], wanted.expert[last]
            wrong -= 1


@called
def _coprime_stride(n: int, draw: float) -> int:
    """A step that visits every residue of n once."""
    stride = 1 + int(draw * (n - 1)) if n > 1 else 1
    while True:
        a, b = n, stride
        while b:
            a, b = b, a % b
        if a == 1:
            return stride
        stride += 1
