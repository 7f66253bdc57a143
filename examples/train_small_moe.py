"""Train a small mixture-of-experts language model on the Python standard library, in about half an hour on 2 cores.

    python examples/train_small_moe.py --minutes 28 --out small-olmoe

The architecture is OLMoE's (transformers `OlmoeForCausalLM`), 8 MoE layers of 32 experts, top-4, width 128; the
tokenizer is a byte-level BPE trained on the same files. The run is limited by time, so the number of steps depends on
the machine; it is written to `training_card.json` with the evidence of learning: the loss on held-out files beside
the entropy of their unigrams (what a model that knows only token frequencies, even theirs, could reach at best).
`--out` holds the checkpoint (`trained/`), the same model before its first step (`untrained/`, the control that
`capture_small_moe.py` needs) and the state that a second call resumes from. Needs the extra `capture`.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import tokenizers
import torch
import transformers
from numpy.typing import NDArray
from stdlib_corpus import read_split
from torch.nn import functional
from transformers import OlmoeConfig, OlmoeForCausalLM, PreTrainedTokenizerFast

FILE_MARK = "<|file|>"
"""Stands before each file; also the model's begin- and end-of-text token."""


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the result but time and machine. Found by short trials on two cores."""

    layers: int = 8
    experts: int = 32
    top_k: int = 4
    width: int = 128
    expert_width: int = 64  # half the width, as in OLMoE-1B-7B (2048 and 1024)
    heads: int = 4
    vocabulary: int = 2048
    context: int = 256
    batch: int = 8
    learning_rate: float = 3e-3
    warm_up_steps: int = 100
    weight_decay: float = 0.1
    clip_norm: float = 1.0
    balance_weight: float = 0.01  # both as in OLMoE (arXiv 2409.02060, section 4.1)
    router_z_weight: float = 0.001
    seed: int = 0

    @property
    def tokens_per_step(self) -> int:
        return self.batch * self.context


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoint, state and card")
    parser.add_argument("--minutes", type=float, default=28.0, help="training time, evaluation not counted")
    parser.add_argument("--threads", type=int, default=2, help="torch threads")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save-every", type=float, default=3.0, help="minutes between saved states")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    recipe = Recipe(seed=options.seed)
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)

    tokenizer = load_or_train_tokenizer(out / "tokenizer.json", recipe)
    train, held_out = (token_stream(tokenizer, read_split(held_out=flag)) for flag in (False, True))
    print(f"tokens: {train.size:,} to train on, {held_out.size:,} held out; vocabulary {recipe.vocabulary}")
    model = new_model(recipe, tokenizer.token_to_id(FILE_MARK))
    parameters = sum(weight.numel() for weight in model.parameters())
    save_model(model, tokenizer, out / "untrained")

    steps, seconds = train_for(
        model, train, recipe, out / "state.pt", options.minutes * 60, options.save_every * 60
    )
    save_model(model, tokenizer, out / "trained")
    untrained = OlmoeForCausalLM.from_pretrained(out / "untrained", experts_implementation="grouped_mm")
    card = {
        "recipe": asdict(recipe),
        "parameters": parameters,
        "steps": steps,
        "tokens_trained": steps * recipe.tokens_per_step,
        "train_tokens_available": int(train.size),
        "training_seconds": round(seconds, 1),
        "threads": options.threads,
        "held_out_tokens": int(held_out.size),
        "held_out_loss_nats_per_token": held_out_loss(model, held_out, recipe),
        "held_out_loss_of_the_untrained_model": held_out_loss(untrained, held_out, recipe),
        "held_out_unigram_entropy_nats_per_token": unigram_entropy(held_out),
        "text": "Python standard library sources and docstrings, tests and encodings left out; licence PSF-2.0",
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "tokenizers": tokenizers.__version__,
            "numpy": np.__version__,
        },
    }
    (out / "training_card.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(card, indent=2))


def load_or_train_tokenizer(path: Path, recipe: Recipe) -> tokenizers.Tokenizer:
    """A byte-level BPE of the training files (never of the held-out ones); read from `path` when it is there."""
    if path.exists():
        return tokenizers.Tokenizer.from_file(str(path))
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=recipe.vocabulary,
        special_tokens=[FILE_MARK],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text for _, text in read_split(held_out=False)), trainer)
    tokenizer.save(str(path))
    return tokenizer


def token_stream(tokenizer: tokenizers.Tokenizer, files: list[tuple[str, str]]) -> NDArray[np.int32]:
    """All files as one row of token ids, a `FILE_MARK` before each."""
    mark = tokenizer.token_to_id(FILE_MARK)
    encoded = tokenizer.encode_batch([text for _, text in files], add_special_tokens=False)
    return np.concatenate([np.array([mark, *one.ids], np.int32) for one in encoded])


def new_model(recipe: Recipe, mark: int) -> OlmoeForCausalLM:
    """The model before its first step; the seed alone decides its weights."""
    torch.manual_seed(recipe.seed)
    config = OlmoeConfig(
        vocab_size=recipe.vocabulary,
        hidden_size=recipe.width,
        intermediate_size=recipe.expert_width,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        max_position_embeddings=4 * recipe.context,
        num_experts=recipe.experts,
        num_experts_per_tok=recipe.top_k,
        pad_token_id=None,
        bos_token_id=mark,
        eos_token_id=mark,
        tie_word_embeddings=False,
        experts_implementation="grouped_mm",
    )
    return OlmoeForCausalLM(config)


def save_model(model: OlmoeForCausalLM, tokenizer: tokenizers.Tokenizer, folder: Path) -> None:
    """A folder that `from_pretrained` (and `workbench trace capture`) reads: safetensors, config, tokenizer."""
    model.save_pretrained(folder)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=FILE_MARK, eos_token=FILE_MARK)
    fast.save_pretrained(folder)


def train_for(
    model: OlmoeForCausalLM,
    stream: NDArray[np.int32],
    recipe: Recipe,
    state_file: Path,
    budget_s: float,
    save_every_s: float,
) -> tuple[int, float]:
    """Train until `budget_s` seconds are used, those of earlier calls included; returns (steps, seconds)."""
    decayed = [weight for weight in model.parameters() if weight.dim() > 1]
    others = [weight for weight in model.parameters() if weight.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": others, "weight_decay": 0.0}],
        betas=(0.9, 0.95),
        lr=0.0,
    )
    step, used_s = 0, 0.0
    if state_file.exists():
        state = torch.load(state_file, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step, used_s = state["step"], state["used_s"]
        print(f"resumed at step {step} after {used_s:.0f} s")
    model.train()
    started = time.perf_counter() - used_s
    told = saved = used_s
    while used_s < budget_s:
        rate = learning_rate(recipe, step, used_s / budget_s)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss, balance = one_step(model, optimizer, batch_of(stream, recipe, step), recipe)
        step += 1
        used_s = time.perf_counter() - started
        if used_s - told > 15:
            told = used_s
            print(
                f"step {step:5d}  loss {loss:.3f}  balance {balance:.3f}  rate {rate:.1e}  "
                f"{step * recipe.tokens_per_step / used_s:,.0f} tokens/s  "
                f"{used_s / budget_s:4.0%} done, {(budget_s - used_s) / 60:.1f} min left",
                flush=True,
            )
        if used_s - saved > save_every_s or used_s >= budget_s:
            saved = used_s
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "step": step,
                "used_s": used_s,
            }
            part = state_file.with_suffix(".part")
            torch.save(state, part)
            part.replace(state_file)
    return step, used_s


def learning_rate(recipe: Recipe, step: int, progress: float) -> float:
    """Linear warm-up by steps, then a half cosine down to a twentieth by the share of the time that is used."""
    warm = min(1.0, (step + 1) / recipe.warm_up_steps)
    return recipe.learning_rate * warm * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0))))


def batch_of(stream: NDArray[np.int32], recipe: Recipe, step: int) -> torch.Tensor:
    """Windows [batch, context + 1] at random places; a function of seed and step, so a resumed run sees the same."""
    rng = np.random.default_rng([recipe.seed, step])
    starts = rng.integers(0, stream.size - recipe.context - 1, recipe.batch)
    return torch.from_numpy(stream[starts[:, None] + np.arange(recipe.context + 1)].astype(np.int64))


def one_step(
    model: OlmoeForCausalLM, optimizer: torch.optim.Optimizer, batch: torch.Tensor, recipe: Recipe
) -> tuple[float, float]:
    """One update; returns (cross entropy in nats a token, load balance: 1 is even)."""
    output = model.model(batch[:, :-1], use_cache=False, output_router_logits=True)
    logits = model.lm_head(output.last_hidden_state)
    loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    balance, router_z = router_losses(torch.stack(output.router_logits), recipe)
    total = loss + recipe.balance_weight * balance + recipe.router_z_weight * router_z
    optimizer.zero_grad(set_to_none=True)
    total.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
    optimizer.step()
    return loss.item(), balance.item()


def router_losses(logits_LTN: torch.Tensor, recipe: Recipe) -> tuple[torch.Tensor, torch.Tensor]:
    """Load-balancing loss (Switch Transformer, arXiv 2101.03961, eq. 4) and z-loss, averaged over layers.

    Layer by layer: transformers' own balancing loss pools all layers before it multiplies, which lets single
    layers collapse on a few experts as long as others make up for it.
    """
    probability = logits_LTN.softmax(-1)
    chosen = probability.topk(recipe.top_k, dim=-1).indices
    share_LN = functional.one_hot(chosen, recipe.experts).float().sum(2).mean(1) / recipe.top_k
    balance = recipe.experts * (share_LN * probability.mean(1)).sum(-1).mean()
    return balance, logits_LTN.logsumexp(-1).square().mean()


@torch.no_grad()
def held_out_loss(model: OlmoeForCausalLM, stream: NDArray[np.int32], recipe: Recipe) -> float:
    """Mean cross entropy, nats a token, over all whole windows of the held-out stream."""
    model.eval()
    windows = (stream.size - 1) // recipe.context
    total = 0.0
    for first in range(0, windows, recipe.batch):
        starts = np.arange(first, min(first + recipe.batch, windows)) * recipe.context
        batch = torch.from_numpy(stream[starts[:, None] + np.arange(recipe.context + 1)].astype(np.int64))
        logits = model(batch[:, :-1], use_cache=False).logits
        total += functional.cross_entropy(
            logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="sum"
        ).item()
    return total / (windows * recipe.context)


def unigram_entropy(stream: NDArray[np.int32]) -> float:
    """Entropy of the stream's own token frequencies, nats a token."""
    counts = np.bincount(stream)
    share = counts[counts > 0] / stream.size
    return float(-(share * np.log(share)).sum())


if __name__ == "__main__":
    main()
