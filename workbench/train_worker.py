"""What a training process does: one design at one seed, on one thread, until it is done or told to stop."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..sim.model import ModelSpec
from .executors import begin_worker

if TYPE_CHECKING:
    from ..kernels.training.corpus import Corpus
    from ..kernels.training.recipe import Recipe


class Job(NamedTuple):
    """One design at one seed."""

    key: str
    """Hash of everything that decides its loss."""
    place: int
    """In the counters of tokens that processes share."""
    design: str
    spec: ModelSpec
    spec_hash: str
    seed: int


@dataclass(frozen=True, slots=True)
class Shared:
    """What all jobs of a set have in common; sent once to each process."""

    parent: int
    """Its process number: a worker ends when its parent does."""
    corpus: Corpus
    recipe: Recipe
    tokens: int
    folder: Path
    """Of checkpoints."""
    save_every_s: float
    stop: Any
    """Shared number, 0 until the jobs are to save their state and end."""
    trained: Any
    """Shared numbers, one a job: tokens so far."""

    def checkpoint(self, key: str) -> Path:
        return self.folder / f"{key}.pt"


_SHARED: Shared | None = None


def begin(shared: Shared) -> None:
    """In a new process, before its first job."""
    global _SHARED  # noqa: PLW0603 — one a process, which is the point
    begin_worker(shared.parent)
    _SHARED = shared
    from ..kernels.training.train import use_one_thread

    use_one_thread()


def run_job(job: Job) -> dict[str, Any] | None:
    """The job's row for the journal; None where it was told to stop and saved its state."""
    shared = _SHARED
    if shared is None:
        raise RuntimeError("a training process was not prepared")
    if shared.stop.value:
        return None
    from ..kernels.training.train import DivergedError, train_model

    def go_on(tokens: int) -> bool:
        shared.trained[job.place] = tokens
        return not shared.stop.value

    row: dict[str, Any] = {"scenario": job.key, "design": job.design, "spec": job.spec_hash, "seed": job.seed}
    try:
        found = train_model(
            job.spec, shared.tokens, job.seed, corpus=shared.corpus, recipe=shared.recipe,
            checkpoint=shared.checkpoint(job.key), save_every_s=shared.save_every_s, go_on=go_on,
        )  # fmt: skip
    except DivergedError as error:
        return row | {"status": "failed", "error": str(error)}
    if found is None:
        return None
    known = {name: value for name, value in asdict(found).items() if value is not None}
    return row | {"status": "ok"} | known


def hash_of(value: Mapping[str, Any]) -> str:
    """32 hex digits of a mapping of plain values, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def spec_facts(spec: ModelSpec) -> dict[str, Any]:
    """Everything of a model that decides its training; its name and source do not."""
    layers = [
        {
            "mixer": {"kind": type(layer.mixer).__name__, **(asdict(layer.mixer) if layer.mixer else {})},
            "ffn": {"kind": type(layer.ffn).__name__, **(asdict(layer.ffn) if layer.ffn else {})},
            "norm_weights": layer.norm_weights,
        }
        for layer in spec.layers
    ]
    names = ("hidden", "vocab", "final_norm_weights", "tied_embeddings", "head_bias")
    return {"layers": layers, **{name: getattr(spec, name) for name in names}}
