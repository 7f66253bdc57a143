"""Capture the repository's own trace from the model that `train_small_moe.py` trained, and write its card.

    python examples/capture_small_moe.py --checkpoint small-olmoe --out traces/data

Each sequence is a piece of a held-out file (another file for each) as prompt, and what the trained model then writes,
drawn from its own distribution. The untrained twin is passed the very same tokens, so that a difference between
the two traces comes from training and from nothing else. Every number in the card is computed here, from the files
just written and from the training card. Needs the extra `capture`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from codesign.traces import ExpertTrace, TraceInfo, read_trace, save_trace, trace_info
from codesign.traces.capture import end_tokens, load_model, prompts_from, record_routing
from numpy.typing import NDArray
from stdlib_corpus import read_split

NAME = "small-olmoe-stdlib"
LICENCE = "Apache-2.0; the prompts that the token ids spell are from the Python standard library, PSF-2.0"
NextToken = Callable[[NDArray[np.float64], int, int], int]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--checkpoint", type=Path, required=True, help="what train_small_moe.py wrote to --out"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the traces and their card")
    parser.add_argument("--sequences", type=int, default=18)
    parser.add_argument("--prompt", type=int, default=64, help="tokens of each prompt")
    parser.add_argument("--decode", type=int, default=96, help="tokens passed after each prompt")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)  # sums are then added in one order: the same bytes each time on one machine
    rng = np.random.default_rng(options.seed)
    names = ("trained", "untrained")
    (model, tokenizer), (twin, _) = (load_model(options.checkpoint / name) for name in names)
    files, prompts = held_out_prompts(tokenizer, options.sequences, options.prompt, rng)

    trained = capture_one(model, prompts, options.decode, drawing(end_tokens(model), rng), NAME)
    tokens_ST = trained.token_ids_T.reshape(options.sequences, -1)
    forced = capture_one(
        twin, prompts, options.decode, lambda _, s, step: int(tokens_ST[s, options.prompt + step]), f"{NAME}-untrained"
    )  # fmt: skip
    assert (forced.token_ids_T == trained.token_ids_T).all()
    save_trace(trained, options.out / f"{NAME}.safetensors")
    # the twin is there to be compared in reuse and recall: ids and guesses do, and the size stays small
    lean = dataclasses.replace(forced, weights_TLK=None, predicted_scores_TLHM=None)
    save_trace(lean, options.out / f"{NAME}-untrained.safetensors")

    training = json.loads((options.checkpoint / "training_card.json").read_text(encoding="utf-8"))
    (options.out / f"{NAME}.training.json").write_text(
        json.dumps(training, indent=2) + "\n", encoding="utf-8"
    )
    card = card_text(options.out, training, files, options.seed)
    (options.out / f"{NAME}.md").write_text(card, encoding="utf-8")
    print(card)


def held_out_prompts(
    tokenizer: Any, count: int, length: int, rng: np.random.Generator
) -> tuple[list[str], list[NDArray[np.int64]]]:
    """(file names, prompts): one piece from each of `count` held-out files, files and pieces drawn."""
    files, prompts = [], []
    texts = read_split(held_out=True)
    for index in rng.permutation(len(texts)):
        name, text = texts[index]
        if len(tokenizer(text, verbose=False).input_ids) >= length and len(files) < count:
            files.append(name)
            prompts += prompts_from(tokenizer, [text], 1, length, rng)
    if len(files) < count:
        raise SystemExit(f"only {len(files)} held-out files have {length} tokens, {count} were asked for")
    return files, prompts


def drawing(never: list[int], rng: np.random.Generator) -> NextToken:
    """Draws the next token from the model's own distribution, the end of the text excepted."""

    def draw(probabilities: NDArray[np.float64], sequence: int, step: int) -> int:
        probabilities[never] = 0
        return int(rng.choice(len(probabilities), p=probabilities / probabilities.sum()))

    return draw


def capture_one(
    model: Any, prompts: list[NDArray[np.int64]], decode_tokens: int, next_token: NextToken, name: str
) -> ExpertTrace:
    return record_routing(
        model,
        prompts,
        decode_tokens,
        next_token,
        lookahead=3,
        guesses=8,
        name=f"{name} ({type(model).__name__})",
        source="examples/capture_small_moe.py: held-out files of the Python standard library, and the trained model's "
        "own continuations",
        licence=LICENCE,
    )


def recall_by_layer(trace: ExpertTrace, ahead: int) -> dict[int, float]:
    """Layer id → share of its experts among the first K guesses made `ahead` layers before it."""
    found = {}
    for layer in range(ahead, trace.num_layers):
        guess = trace.predicted_TLHM[:, layer - ahead, ahead - 1, : trace.top_k]
        hits = (trace.experts_TLK[:, layer, :, None] == guess[:, None, :]).any(-1)
        found[int(trace.layer_ids_L[layer])] = float(hits.mean())
    return found


def card_text(folder: Path, training: dict[str, Any], files: list[str], seed: int) -> str:
    """The card in Markdown, from the two trace files in `folder` and what training left."""
    traces = [read_trace(folder / f"{name}.safetensors") for name in (NAME, f"{NAME}-untrained")]
    infos = [trace_info(trace) for trace in traces]
    info, recipe = infos[0], training["recipe"]
    loss, unigram = (
        training["held_out_loss_nats_per_token"],
        training["held_out_unigram_entropy_nats_per_token"],
    )
    gain = unigram - loss
    verdict = (
        "The bar of 0.5 nats is passed."
        if gain >= 0.5
        else "**This misses the bar of 0.5 nats: the model failed to learn.**"
    )
    versions = ", ".join(f"{name} {version}" for name, version in training["versions"].items())
    return f"""# {NAME}: routing of a small mixture-of-experts model, really trained and really run

Written by `examples/capture_small_moe.py`; every number is computed from the files beside it.

## What it is, and what it is not

A language model of OLMoE's architecture with {training["parameters"] / 1e6:.2f} M parameters: {recipe["layers"]} MoE layers × {recipe["experts"]}
experts, top-{recipe["top_k"]}, width {recipe["width"]}, expert width {recipe["expert_width"]}, vocabulary {recipe["vocabulary"]} (byte-level BPE). It was trained by
`examples/train_small_moe.py` on a CPU ({training["threads"]} threads, {training["training_seconds"] / 60:.0f} minutes, {training["steps"]} steps,
{training["tokens_trained"] / 1e6:.2f} M tokens, {training["tokens_trained"] / training["train_tokens_available"]:.1f} passes over the text, seed {recipe["seed"]}).

It is a real trace: a learnt router, real text, real prefill and decode with a KV cache. It is **not** the routing of a
large model. At this size experts specialise on spelling and syntax more than on topics, the text is one kind (Python
source), and a conclusion about a model that you will serve needs a trace of that model (`workbench trace capture`).

## Evidence of learning

| held-out text ({training["held_out_tokens"]:,} tokens) | nats a token |
|---|---|
| entropy of its own unigrams | {unigram:.3f} |
| loss of the untrained model | {training["held_out_loss_of_the_untrained_model"]:.3f} |
| **loss of the trained model** | **{loss:.3f}** |

{gain:.3f} nats below the unigram entropy. {verdict}

## The trace

{info.sequences} sequences of {info.sequence_tokens_max} tokens: {info.prefill_tokens} prompt tokens (a prompt is one pass) and {info.decode_tokens} decoded ones (a pass each),
drawn from the model's own distribution (temperature 1, end of text never drawn, seed {seed}); {info.logical:,} expert
accesses. With it: gate weights, the 8 best guesses of the gates 1, 2 and 3 layers ahead with their scores, token ids,
steps. `{NAME}-untrained.safetensors` is the same model before its first step, passed the
same tokens: the control (ids and guesses only). An untrained router reuses experts too, because hidden states change
little from token to token and layer to layer; only what exceeds the twin was learnt.

{totals_table(infos)}

{layers_table(infos, traces)}

Reuse: share of a token's experts that the token before it in its sequence used, mean over the trace. By loads: what two
unrelated tokens would share with this layer's loads. Recall: share of a layer's experts that are among the first {info.top_k}
guesses of its gate, asked with the hidden state that the gate of the layer before saw.

## Provenance and licence

- Text: sources and docstrings of the Python standard library (tests and `encodings` left out), licence PSF-2.0. One file in twenty
  is held out by the SHA-256 of its name (`examples/stdlib_corpus.py`); the prompts are from held-out files only:
  {", ".join(f"`{name}`" for name in files)}.
- Traces, card and scripts: Apache-2.0.
- Training facts: `{NAME}.training.json`. Versions: {versions}.
"""


def totals_table(infos: list[TraceInfo]) -> str:
    trained, twin = infos
    rows = [
        ("reuse of the token before", trained.reuse, twin.reuse),
        ("the same, decoded tokens only", trained.reuse_decode, twin.reuse_decode),
        ("reuse of unrelated tokens (by loads)", trained.reuse_by_loads, twin.reuse_by_loads),
        ("reuse by chance (top-k / experts)", trained.reuse_chance, twin.reuse_chance),
        *(
            (f"gate-guess recall, {ours.ahead} ahead, first {trained.top_k}", ours.recall_first_k, theirs.recall_first_k)
            for ours, theirs in zip(trained.guesses, twin.guesses, strict=True)
        ),
        *(
            (f"gate-guess recall, {ours.ahead} ahead, all {ours.guesses}", ours.recall_all, theirs.recall_all)
            for ours, theirs in zip(trained.guesses, twin.guesses, strict=True)
        ),
        ("most used expert over the mean", trained.load_max_over_mean, twin.load_max_over_mean),
        ("share of the most possible load entropy", trained.entropy_share, twin.entropy_share),
    ]  # fmt: skip
    head = "| whole trace | trained | untrained twin |\n|---|---|---|"
    return "\n".join([head, *(f"| {name} | {ours:.3f} | {theirs:.3f} |" for name, ours, theirs in rows)])


def layers_table(infos: list[TraceInfo], traces: list[ExpertTrace]) -> str:
    recalls = [recall_by_layer(trace, 1) for trace in traces]
    head = (
        "| layer | reuse | reuse, twin | by loads | by loads, twin | recall 1 ahead | recall 1 ahead, twin |\n"
        "|---|---|---|---|---|---|---|"
    )
    lines = [head]
    for ours, theirs in zip(infos[0].per_layer, infos[1].per_layer, strict=True):
        recall = [f"{found[ours.layer]:.3f}" if ours.layer in found else "–" for found in recalls]
        values = (ours.reuse.measured, theirs.reuse.measured, ours.reuse.by_loads, theirs.reuse.by_loads)
        lines.append(f"| {ours.layer} | " + " | ".join([f"{value:.3f}" for value in values] + recall) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
