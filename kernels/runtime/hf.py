"""Mixtures of experts in Hugging Face's own code: built, timed whole, and timed layer by layer.

The only file besides capture that imports transformers. Classes: OLMoE, Qwen3-MoE, Mixtral.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import InputFileError, RunError, UsageError

MODEL_TYPES = ("mixtral", "olmoe", "qwen3_moe")
_MEMORY_SHARE = 0.5  # of what is free: weights, and what a forward pass needs beside them


class Times(NamedTuple):
    """Seconds of one pass; `attention_s` and `moe_s` are of one layer, None where layers were not timed."""

    whole_s: float
    layer_s: float | None
    attention_s: float | None
    moe_s: float | None


class HfModel:
    """One model of transformers on the processor, in fp32, with one thread while it is timed."""

    def __init__(self, source: str | Path, *, layers: int | None = None, seed: int = 0) -> None:
        """`source` is a config.json, or a folder with one (and, for the whole depth, weights). `layers` makes it shallower.

        Raises `UsageError` for other classes, a model too large for this machine, or without transformers.
        """
        import torch

        try:
            import transformers
        except ImportError as error:
            raise UsageError(
                "a Hugging Face model needs transformers: pip install 'codesign-workbench[capture]'"
            ) from error
        transformers.logging.set_verbosity_error()
        path = Path(source)
        config = transformers.AutoConfig.for_model(**_config_of(path))
        self.layers = config.num_hidden_layers
        if layers is not None:
            self.layers = config.num_hidden_layers = layers
        has_weights = layers is None and path.is_dir() and any(path.glob("*.safetensors"))
        _check_fits(config, path)
        torch.manual_seed(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if has_weights:
                model = transformers.AutoModelForCausalLM.from_pretrained(
                    path, local_files_only=True, dtype=torch.float32
                )
            else:
                model = transformers.AutoModelForCausalLM.from_config(config)
        self.model = model.float().eval()
        self.vocab, self.weights = int(config.vocab_size), "checkpoint" if has_weights else "random"
        self.experts_implementation = str(getattr(model.config, "_experts_implementation", "unknown"))

    def prefill(self, tokens: int) -> Times:
        """One prompt of that many tokens, from nothing."""
        return self._timed(self._ids(tokens), None)

    def decode(self, context: int, steps: int) -> Times:
        """Mean of `steps` tokens that follow `context` tokens."""
        import torch

        cache = self._run(self._ids(context), None)
        found = []
        for _ in range(steps):
            found.append(self._timed(torch.randint(0, self.vocab, (1, 1)), cache))
        columns = list(zip(*found, strict=True))
        return Times(*(None if None in column else sum(column) / steps for column in columns))  # type: ignore[arg-type]

    @contextmanager
    def layers_timed(self) -> Iterator[None]:
        """Inside, passes are also timed by layer, attention and mixture."""
        self._spans: dict[str, list[float]] = {"layer": [], "attention": [], "moe": []}
        handles = []
        for layer in self.model.model.layers:
            for name, module in (("layer", layer), ("attention", layer.self_attn), ("moe", layer.mlp)):
                handles += self._watch(name, module)
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            del self._spans

    def _watch(self, name: str, module: Any) -> list[Any]:
        began: list[float] = []

        def before(*_: object) -> None:
            began.append(time.perf_counter())

        def after(*_: object) -> None:
            self._spans[name].append(time.perf_counter() - began.pop())

        return [module.register_forward_pre_hook(before), module.register_forward_hook(after)]

    def _ids(self, tokens: int) -> Any:
        import torch

        return torch.randint(0, self.vocab, (1, tokens))

    def _run(self, ids: Any, cache: Any) -> Any:
        import torch

        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1).past_key_values

    def _timed(self, ids: Any, cache: Any) -> Times:
        spans = getattr(self, "_spans", None)
        if spans is not None:
            for values in spans.values():
                values.clear()
        began = time.perf_counter()
        self._run(ids, cache)
        whole = time.perf_counter() - began
        if spans is None:
            return Times(whole, None, None, None)
        return Times(whole, *(sum(spans[name]) / self.layers for name in ("layer", "attention", "moe")))


def _config_of(path: Path) -> dict[str, Any]:
    file = path / "config.json" if path.is_dir() else path
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputFileError(file, error.strerror or str(error)) from error
    except ValueError as error:
        raise InputFileError(file, f"is not JSON: {error}") from error
    if not isinstance(found, dict) or found.get("model_type") not in MODEL_TYPES:
        kind = found.get("model_type") if isinstance(found, dict) else None
        raise InputFileError(file, f"model_type {kind!r} is none of {', '.join(MODEL_TYPES)}", "model_type")
    return found


def _check_fits(config: Any, path: Path) -> None:
    width = getattr(config, "moe_intermediate_size", None) or config.intermediate_size
    experts = getattr(config, "num_local_experts", None) or config.num_experts
    needed = 4 * config.num_hidden_layers * experts * 3 * width * config.hidden_size
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return
    if needed > _MEMORY_SHARE * free:
        raise RunError(
            f"{path}: its experts take {needed / 1e9:.1f} GB in fp32 and {free / 1e9:.1f} GB of memory are free: "
            "give a config with fewer layers or narrower experts"
        )
