"""Models and text so small that training them takes a second. Also run as a script, by tests that kill it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from codesign.kernels.training.corpus import Corpus
from codesign.kernels.training.recipe import Recipe
from codesign.sim.model import ModelSpec
from codesign.sim.small_designs import latent_of, small_moe
from codesign.workbench.train_designs import train_designs
from codesign.workbench.train_result import TrainedDesigns

VOCAB = 16
RECIPE = Recipe(context=16, batch=8, learning_rate=1e-2, held_out_tokens=1024)
TOKENS = 40 * RECIPE.tokens_per_step
SEEDS = (0, 1)


def tiny_corpus(seed: int = 0) -> Corpus:
    """A Markov chain: after each token one of two follows, equally likely. Nothing can get below ln 2."""
    rng = np.random.default_rng(seed)
    one = rng.permutation(VOCAB)
    follows = np.stack([one, np.roll(one, 1)])
    tokens = [0]
    for side in rng.integers(0, 2, 12_000):
        tokens.append(int(follows[side, tokens[-1]]))
    stream = np.array(tokens, np.uint8)
    return Corpus("two followers", stream[:10_000], stream[10_000:], VOCAB)


def tiny_designs() -> dict[str, ModelSpec]:
    base = small_moe(hidden=16, layers=2, heads=2, num_experts=4, top_k=1, expert_width=32, vocab=VOCAB)
    return {"standard": base, "latent-2": latent_of(base, 2, multiple=1)}


def train_tiny(out: Path, *, resume: bool = False, **more: object) -> TrainedDesigns:
    given = {
        "tokens": TOKENS,
        "seeds": SEEDS,
        "workers": 1,
        "corpus": tiny_corpus(),
        "recipe": RECIPE,
        **more,
    }
    designs = given.pop("designs", None) or tiny_designs()
    return train_designs(designs, out=out, resume=resume, save_every_s=0.0, **given)  # type: ignore[arg-type]


if __name__ == "__main__":
    train_tiny(Path(sys.argv[1]))
