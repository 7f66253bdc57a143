"""Run a Hugging Face mixture-of-experts model on text and record its routing.

What is noted for each token is in `gates.py`. Each sequence runs alone with a KV cache: its prompt in one pass, then
one token a pass. Tested are OLMoE, Mixtral, Qwen2-MoE, Qwen3-MoE and DeepSeek-V3. torch and transformers are imported
only when a function here is called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..files import existing_file
from .expert_trace import ExpertTrace
from .gates import hooked
from .ids import id_dtype

EXTRA = "codesign-workbench[capture]"

NextToken = Callable[[NDArray[np.float64], int, int], int]
"""(probabilities of the next token [vocabulary], sequence, decode step) → token id."""


def capture(
    model_path: str | Path,
    text: str | Path | Sequence[Path],
    *,
    num_sequences: int,
    prompt_tokens: int,
    decode_tokens: int,
    lookahead: int = 3,
    guesses: int = 8,
    device: str = "cpu",
    seed: int = 0,
) -> ExpertTrace:
    """Record `num_sequences` prompts and what the model writes after each.

    `text` is a text itself (`str`) or the files to take it from (`Path`). Prompts are pieces of it that do not
    overlap, drawn by `seed`, which also draws the decoded tokens (from the model's own distribution; its
    end-of-text token is never drawn, so every sequence has prompt_tokens + decode_tokens rows). The last drawn
    token is not passed through the model and has no row. `guesses` experts are kept of each guess, at least top-k
    and at most all. Scores are what the gate gives each expert before the K best are picked.

    Raises `UsageError` where the extra is missing, the model cannot be read or is dense, or the text is too short.
    """
    for name, value, least in (
        ("num_sequences", num_sequences, 1),
        ("prompt_tokens", prompt_tokens, 1),
        ("decode_tokens", decode_tokens, 0),
        ("lookahead", lookahead, 0),
        ("guesses", guesses, 1),
    ):
        if value < least:
            raise UsageError(f"{name} must be at least {least}, got {value}")
    model, tokenizer = load_model(model_path, device)
    rng = np.random.default_rng(seed)
    prompts = prompts_from(tokenizer, read_texts(text), num_sequences, prompt_tokens, rng)
    never = end_tokens(model)

    def drawn(probabilities: NDArray[np.float64], sequence: int, step: int) -> int:
        probabilities[never] = 0
        return int(rng.choice(len(probabilities), p=probabilities / probabilities.sum()))

    return record_routing(
        model,
        prompts,
        decode_tokens,
        drawn,
        lookahead=lookahead,
        guesses=guesses,
        name=model_name(model, model_path),
        source=f"captured from {Path(model_path).name} on {describe_text(text)}, seed {seed}",
    )


def load_model(model_path: str | Path, device: str = "cpu") -> tuple[Any, Any]:
    """(model in evaluation mode, tokenizer) from a folder or a Hugging Face name."""
    transformers = import_transformers()
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(str(model_path), dtype="auto")
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(model_path))
        model.to(device).eval()
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UsageError(
            f"cannot read a language model with its tokenizer from {model_path}: {reason}"
        ) from error
    return model, tokenizer


def import_transformers() -> Any:
    """The module, or `UsageError` naming the extra to install."""
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError as error:
        raise UsageError(
            f"capturing a trace needs torch and transformers: pip install '{EXTRA}' ({error})"
        ) from error
    return transformers


def read_texts(text: str | Path | Sequence[Path]) -> list[str]:
    """The texts to take prompts from; files that are not UTF-8 are refused."""
    if isinstance(text, str):
        return [text]
    texts = []
    for path in [text] if isinstance(text, Path) else text:
        try:
            texts.append(existing_file(path).read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise UsageError(f"{path}: byte {error.start}: not UTF-8 text") from error
    return texts


def describe_text(text: str | Path | Sequence[Path]) -> str:
    """How the source of the prompts is named in the trace."""
    if isinstance(text, str):
        return "given text"
    names = [text.name] if isinstance(text, Path) else [path.name for path in text]
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} other files"


def model_name(model: Any, model_path: str | Path) -> str:
    """Folder name and architecture, e.g. `small-olmoe (OlmoeForCausalLM)`."""
    return f"{Path(model_path).name} ({type(model).__name__})"


def end_tokens(model: Any) -> list[int]:
    """Ids of the model's end-of-text tokens; none where it does not say."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    if configured is None:
        return []
    return [configured] if isinstance(configured, int) else [int(token) for token in configured]


def prompts_from(
    tokenizer: Any, texts: Sequence[str], count: int, length: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """`count` prompts of `length` tokens from places that do not overlap, in drawn order.

    A tokenizer that puts a beginning-of-text token before a text puts it before each prompt, within its length.
    """
    begin = getattr(tokenizer, "bos_token_id", None)
    head = [begin] if begin is not None and list(tokenizer("").input_ids[:1]) == [begin] else []
    piece = length - len(head)
    if piece < 1:
        raise UsageError(
            f"prompt_tokens must be at least {len(head) + 1} for a tokenizer with a beginning token, got {length}"
        )
    encoded = [tokenizer(text, add_special_tokens=False, verbose=False).input_ids for text in texts]
    places = [(i, at) for i, ids in enumerate(encoded) for at in range(0, len(ids) - piece + 1, piece)]
    if len(places) < count:
        raise UsageError(
            f"the text has room for {len(places)} prompts of {length} tokens "
            f"({sum(map(len, encoded))} tokens in all), {count} were asked for"
        )
    chosen = rng.permutation(len(places))[:count]
    return [
        np.array(head + encoded[i][at : at + piece], np.int64)
        for i, at in (places[place] for place in chosen)
    ]


def record_routing(
    model: Any,
    prompts: Sequence[NDArray[np.int64]],
    decode_tokens: int,
    next_token: NextToken,
    *,
    lookahead: int,
    guesses: int,
    name: str,
    source: str,
    licence: str = "unknown",
) -> ExpertTrace:
    """Run each prompt and `decode_tokens` more tokens, named by `next_token`, through a model with hooks.

    Weights and scores are float16, ids the smallest signed type that holds them.
    """
    import torch

    cache_name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    fed: list[int] = []
    pass_sizes: list[int] = []
    starts: list[int] = []
    with torch.inference_mode(), hooked(model, lookahead, guesses) as (layer_ids, record):
        for sequence, prompt in enumerate(prompts):
            starts.append(len(fed))
            cache, tokens = None, prompt
            for step in range(decode_tokens + 1):
                ids = torch.as_tensor(tokens, device=model.device).reshape(1, -1)
                output = model(input_ids=ids, use_cache=True, **({cache_name: cache} if step else {}))
                cache = getattr(output, cache_name)
                fed += [int(token) for token in tokens]
                pass_sizes.append(len(tokens))
                if step < decode_tokens:
                    probabilities = output.logits[0, -1].double().softmax(-1).cpu().numpy()
                    tokens = np.array([next_token(probabilities, sequence, step)], np.int64)
    if len(record.num_experts) != 1:
        raise UsageError(f"layers have different numbers of experts: {sorted(record.num_experts)}")
    num_experts = record.num_experts.pop()
    kind = id_dtype(num_experts)
    experts = stacked(record.experts).astype(kind)
    is_prefill = np.zeros(len(fed), bool)
    for start, prompt in zip(starts, prompts, strict=True):
        is_prefill[start : start + len(prompt)] = True
    return ExpertTrace(
        experts_TLK=experts,
        layer_ids_L=np.array(layer_ids, np.int32),
        num_experts=num_experts,
        sequence_start_S=np.array(starts, np.int64),
        model=name,
        source=source,
        licence=licence,
        synthetic=False,
        is_prefill_T=is_prefill,
        weights_TLK=stacked(record.weights).astype(np.float16),
        predicted_TLHM=stacked(record.guesses).astype(kind) if lookahead else None,
        predicted_scores_TLHM=stacked(record.scores).astype(np.float16) if lookahead else None,
        token_ids_T=np.array(fed, np.int32),
        step_id_T=np.repeat(np.arange(len(pass_sizes), dtype=np.int64), pass_sizes),
    )


def stacked(by_layer: list[list[NDArray[Any]]]) -> NDArray[Any]:
    """[T, L, …] from arrays [rows of a pass, …] listed by layer."""
    return np.stack([np.concatenate(passes) for passes in by_layer], axis=1)
