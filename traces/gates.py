"""What a Hugging Face model's routers choose, and what they would have chosen from an earlier layer's state.

A forward hook on every router notes, for each token, which experts it chose and with what weights, and asks the
routers of the next H MoE layers what they would choose from the same hidden state: the guess that gate-speculating
prefetchers make.

Routers are found by structure, not by a list of models: a child named `gate` or `router` whose parent also has
`experts`. They must return (logits, weights, expert ids), as the families of transformers 5 do. Nothing here imports
torch: tensors become numpy arrays as soon as they arrive.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .expert_trace import PADDING

ROUTER_NAMES = ("gate", "router")


@dataclass(slots=True)
class Record:
    """What the routers said, one array a pass: lists by MoE layer."""

    experts: list[list[NDArray[np.int64]]]
    """[T, K]"""
    weights: list[list[NDArray[np.float32]]]
    """[T, K]"""
    guesses: list[list[NDArray[np.int64]]]
    """[T, H, M]"""
    scores: list[list[NDArray[np.float32]]]
    """[T, H, M]"""
    num_experts: set[int] = field(default_factory=set)


def find_routers(model: Any) -> list[tuple[int, Any]]:
    """(layer number, router module) of each MoE layer, ascending; `UsageError` for a dense model."""
    found: dict[int, Any] = {}
    for path, parent in model.named_modules():
        names = dict(parent.named_children())
        router = next((names[name] for name in ROUTER_NAMES if name in names), None)
        if router is None or "experts" not in names:
            continue
        number = re.search(r"\.(\d+)(\.|$)", path)
        if number is None or int(number[1]) in found:
            raise UsageError(
                f"cannot tell which layer the experts at {path!r} of {type(model).__name__} belong to"
            )
        found[int(number[1])] = router
    if not found:
        raise UsageError(
            f"{type(model).__name__} has no mixture-of-experts layer (no module with `experts` beside a `gate` or "
            "`router`): it is dense, or of a family that capture does not know"
        )
    return sorted(found.items())


@contextmanager
def hooked(model: Any, lookahead: int, guesses: int) -> Iterator[tuple[list[int], Record]]:
    """Hooks on every router while the block runs; yields (layer numbers, the record they fill)."""
    routers = find_routers(model)
    record = Record(
        experts=[[] for _ in routers],
        weights=[[] for _ in routers],
        guesses=[[] for _ in routers],
        scores=[[] for _ in routers],
    )

    def hook_of(layer: int) -> Callable[[Any, Any, Any, Any], None]:
        def hook(router: Any, inputs: Any, named: Any, output: Any) -> None:
            answer = Answer.of(router, output)
            record.num_experts.add(answer.num_experts)
            record.experts[layer].append(answer.experts_TK)
            record.weights[layer].append(answer.weights_TK)
            best = min(max(guesses, answer.experts_TK.shape[1]), answer.num_experts)
            shape = (len(answer.experts_TK), lookahead, best)
            guess, score = np.full(shape, PADDING), np.zeros(shape, np.float32)
            for ahead, (_, later) in enumerate(routers[layer + 1 : layer + 1 + lookahead]):
                # forward, not a call: what a later router is asked ahead of time is none of its own routing
                guess[:, ahead], score[:, ahead] = Answer.of(later, later.forward(*inputs, **named)).best(
                    best
                )
            record.guesses[layer].append(guess)
            record.scores[layer].append(score)

        return hook

    with ExitStack() as stack:
        for layer, (_, router) in enumerate(routers):
            stack.callback(router.register_forward_hook(hook_of(layer), with_kwargs=True).remove)
        yield [number for number, _ in routers], record


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """One router's answer for the rows of one pass; experts by descending weight."""

    experts_TK: NDArray[np.int64]
    weights_TK: NDArray[np.float32]
    scores_TN: NDArray[np.float64]
    """Probability (softmax) or sigmoid of each expert."""
    order_TN: NDArray[np.float64]
    """What experts are ranked by: the score, with the selection bias of DeepSeek-V3's kind added."""

    @property
    def num_experts(self) -> int:
        return int(self.scores_TN.shape[1])

    @staticmethod
    def of(router: Any, output: Any) -> Answer:
        """Read (logits, weights, ids); transformers 5.0 gives probabilities under the name of logits."""
        parts = (
            [part for part in output if hasattr(part, "is_floating_point")]
            if isinstance(output, tuple)
            else []
        )
        floats = [array_of(part) for part in parts if part.is_floating_point()]
        ids = [
            part.reshape(-1, part.shape[-1]).cpu().numpy() for part in parts if not part.is_floating_point()
        ]
        if (
            len(floats) != 2
            or len(ids) != 1
            or ids[0].shape != floats[1].shape
            or len(floats[0]) != len(ids[0])
        ):
            raise UsageError(
                f"router {type(router).__name__} does not return (logits, weights, expert ids): this family, or this "
                "version of transformers, is not one that capture knows"
            )
        logits, weights = floats[0].astype(np.float64), floats[1]
        bias = getattr(router, "e_score_correction_bias", None)
        scores: NDArray[np.float64]
        if bias is not None:
            scores = 1 / (1 + np.exp(-logits))
        elif (logits >= 0).all() and np.allclose(logits.sum(1), 1, atol=1e-3):
            scores = logits
        else:
            scores = np.exp(logits - logits.max(1, keepdims=True))
            scores /= scores.sum(1, keepdims=True)
        order = scores if bias is None else scores + array_of(bias.reshape(1, -1))
        by_weight = np.argsort(-weights, axis=1, kind="stable")
        return Answer(
            np.take_along_axis(ids[0].astype(np.int64), by_weight, 1),
            np.take_along_axis(weights, by_weight, 1),
            scores,
            order,
        )

    def best(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """(ids, scores) [T, count]: the K that the router itself picks, then the next ones, best first."""
        rank = self.order_TN.copy()
        picked = np.take_along_axis(rank, self.experts_TK, 1)
        np.put_along_axis(rank, self.experts_TK, picked + (1 + np.ptp(rank)), 1)
        ids = np.argsort(-rank, axis=1, kind="stable")[:, :count]
        return ids, np.take_along_axis(self.scores_TN, ids, 1)


def array_of(tensor: Any) -> NDArray[np.float32]:
    """A floating-point tensor as float32 rows [T, last dimension] in host memory."""
    array: NDArray[np.float32] = tensor.reshape(-1, tensor.shape[-1]).float().cpu().numpy()
    return array
