"""The training of one decoder: AdamW, linear warm-up, half cosine, a fixed number of tokens, loss on held-out text.

What a step sees is a function of text, recipe, seed and the step's number, and of nothing else: every design sees the
same tokens in the same order at the same seed, and a run that was interrupted ends with the same weights as one that
was not.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from ...errors import RunError
from ...files import written_whole
from ...sim.model import ModelSpec
from .corpus import Corpus
from .model import Decoder, router_losses
from .recipe import Recipe, TrainedModel, check_trainable

_CURVE_POINTS = 40
_SAVE_EVERY_S = 60.0
_LAST_RATE = 0.05  # of the peak, at the end of the cosine
_BETAS = (0.9, 0.95)


def use_one_thread() -> None:
    """For a process that trains beside others; a run is repeatable to the last bit with one thread only."""
    torch.set_num_threads(1)


def train_model(
    spec: ModelSpec,
    tokens: int,
    seed: int,
    *,
    corpus: Corpus,
    recipe: Recipe | None = None,
    checkpoint: Path | None = None,
    save_every_s: float = _SAVE_EVERY_S,
    go_on: Callable[[int], bool] | None = None,
) -> TrainedModel | None:
    """Train `spec` on `tokens` tokens (rounded up to whole steps) and judge it on text it has not seen.

    Uses as many threads as torch is set to; bit for bit repeatable with one. `checkpoint` is a file that holds the state
    of an unfinished run: it is continued where it is there, and renewed every `save_every_s` seconds. `go_on` is told the
    tokens so far after each step; where it says no, the state is saved and None returned.

    Raises `UsageError` for a model that cannot be trained here, `DivergedError` where the loss is no number any more.
    """
    recipe = recipe or Recipe()
    check_trainable(spec, corpus.vocab)
    steps = recipe.steps(tokens)
    run = _Run(spec, seed, corpus, recipe, steps)
    if checkpoint is not None:
        run.load(checkpoint)
    saved = time.monotonic()
    while run.step < steps:
        run.advance()
        stopped = go_on is not None and not go_on(run.step * recipe.tokens_per_step)
        if checkpoint is not None and (stopped or time.monotonic() - saved > save_every_s):
            run.save(checkpoint)
            saved = time.monotonic()
        if stopped and run.step < steps:
            return None
    loss, error, judged = held_out_loss(run.decoder, corpus.held_out_N, recipe)
    if not math.isfinite(loss):
        raise DivergedError(f"{spec.name}, seed {seed}: the held-out loss is no number")
    return TrainedModel(
        held_out_loss=loss, held_out_error=error, held_out_tokens=judged, tokens=steps * recipe.tokens_per_step,
        steps=steps, curve=tuple((at, value) for at, value in run.curve), balance=run.balance, seconds=run.seconds,
    )  # fmt: skip


class DivergedError(RunError):
    """The loss is no number any more: the same run would end so again."""


class _Run:
    """A decoder on its way, with everything that a checkpoint holds."""

    def __init__(self, spec: ModelSpec, seed: int, corpus: Corpus, recipe: Recipe, steps: int) -> None:
        self.decoder, self.seed = Decoder(spec, seed), seed
        self.corpus, self.recipe, self.steps = corpus, recipe, steps
        weights = list(self.decoder.weights.values())
        groups = [  # norms are not decayed
            {"params": [one for one in weights if one.dim() > 1], "weight_decay": recipe.weight_decay},
            {"params": [one for one in weights if one.dim() == 1], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=0.0, betas=_BETAS, fused=True)
        self.step, self.seconds = 0, 0.0
        self.curve: list[tuple[int, float]] = []
        self.balance: float | None = None
        self._since: list[tuple[float, float | None]] = []

    def advance(self) -> None:
        """One update. Raises `DivergedError` where the loss is no number any more."""
        started = time.perf_counter()
        for group in self.optimizer.param_groups:
            group["lr"] = rate_at(self.step, self.steps, self.recipe)
        batch = batch_of(self.corpus.train_N, self.recipe, self.seed, self.step)
        logits_BTV, routers = self.decoder.forward(batch[:, :-1])
        loss = cross_entropy(logits_BTV.flatten(0, 1), batch[:, 1:].flatten())
        total, balance = loss, None
        if routers:
            even, square = router_losses(routers, self.decoder.spec.top_k)
            total = loss + self.recipe.balance_weight * even + self.recipe.router_z_weight * square
            balance = even.item()
        value = loss.item()
        if not math.isfinite(value):
            raise DivergedError(
                f"{self.decoder.spec.name}, seed {self.seed}: the loss is no number at step {self.step}"
            )
        self.optimizer.zero_grad(set_to_none=True)
        total.backward()
        torch.nn.utils.clip_grad_norm_(self.decoder.weights.values(), self.recipe.clip_norm)
        self.optimizer.step()
        self.step += 1
        self.seconds += time.perf_counter() - started
        self._note(value, balance)

    def _note(self, loss: float, balance: float | None) -> None:
        self._since.append((loss, balance))
        every = max(1, self.steps // _CURVE_POINTS)
        if self.step % every and self.step < self.steps:
            return
        losses, balances = zip(*self._since, strict=True)
        self.curve.append((self.step * self.recipe.tokens_per_step, sum(losses) / len(losses)))
        known = [one for one in balances if one is not None]
        self.balance = sum(known) / len(known) if known else None
        self._since.clear()

    def save(self, path: Path) -> None:
        state = {
            "weights": {name: one.detach() for name, one in self.decoder.weights.items()},
            "optimizer": self.optimizer.state_dict(),
            "step": self.step, "seconds": self.seconds, "curve": self.curve, "balance": self.balance,
            "since": self._since,
        }  # fmt: skip
        with written_whole(path) as part:
            torch.save(state, part)

    def load(self, path: Path) -> None:
        """Go on from a checkpoint. One that cannot be read (a power cut) costs its work and nothing else."""
        state: dict[str, Any] | None = None
        if path.exists():
            with contextlib.suppress(OSError, RuntimeError, EOFError, ValueError):
                state = torch.load(path, weights_only=True)
        if state is None:
            return
        with torch.no_grad():
            for name, weight in self.decoder.weights.items():
                weight.copy_(state["weights"][name])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.seconds, self.balance = state["step"], state["seconds"], state["balance"]
        self.curve, self._since = list(state["curve"]), list(state["since"])


def rate_at(step: int, steps: int, recipe: Recipe) -> float:
    """Learning rate of a step (from 0): linear warm-up, then a half cosine down to a twentieth."""
    warm = recipe.warm_up * steps
    if step + 1 < warm:
        return recipe.learning_rate * (step + 1) / warm
    share = (step - warm) / max(1.0, steps - warm)
    return recipe.learning_rate * (
        _LAST_RATE + (1 - _LAST_RATE) * 0.5 * (1 + math.cos(math.pi * max(0.0, share)))
    )


def batch_of(tokens_N: NDArray[np.uint8], recipe: Recipe, seed: int, step: int) -> Tensor:
    """Windows [batch, context + 1]; none comes twice before all came once. A function of its arguments.

    Windows lie side by side from a random start, in an order drawn anew for each round over the text.
    """
    length = min(recipe.context, len(tokens_N) - 1)
    # at least one window: the random start never reaches into the last one
    per_round = max(1, (len(tokens_N) - 1) // length - 1)
    first = step * recipe.batch
    windows: list[int] = []
    while len(windows) < recipe.batch:
        round_, place = divmod(first + len(windows), per_round)
        draw = np.random.default_rng([seed, round_])
        start = int(draw.integers(0, max(1, len(tokens_N) - per_round * length)))
        order = draw.permutation(per_round)[place : place + recipe.batch - len(windows)]
        windows += [start + int(one) * length for one in order]
    at_BT = np.asarray(windows)[:, None] + np.arange(length + 1)
    return torch.from_numpy(tokens_N[at_BT].astype(np.int64))


def held_out_loss(
    decoder: Decoder, tokens_N: NDArray[np.uint8], recipe: Recipe
) -> tuple[float, float | None, int]:
    """(mean cross entropy in nats a token, its standard error over windows or None for one, tokens judged).

    Windows of `recipe.context` tokens side by side, spread evenly over the text where it holds more than are wanted.
    Neighbouring windows resemble each other, so the error is somewhat too small.
    """
    length = min(recipe.context, len(tokens_N) - 1)
    there = (len(tokens_N) - 1) // length
    wanted = min(there, max(1, recipe.held_out_tokens // length))
    starts = (np.arange(wanted) * there // wanted) * length
    losses: list[float] = []
    with torch.no_grad():
        for first in range(0, wanted, recipe.batch):
            at_BT = starts[first : first + recipe.batch, None] + np.arange(length + 1)
            batch = torch.from_numpy(tokens_N[at_BT].astype(np.int64))
            logits_BTV, _ = decoder.forward(batch[:, :-1])
            each_BT = cross_entropy(logits_BTV.transpose(1, 2), batch[:, 1:], reduction="none")
            losses += each_BT.double().mean(1).tolist()
    error = float(np.std(losses, ddof=1)) / math.sqrt(wanted) if wanted > 1 else None
    return float(np.mean(losses)), error, wanted * length
