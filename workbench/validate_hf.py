"""A model nobody here wrote: predicted and measured prefill and decode times of Hugging Face's own code.

Calibrated on a shallower model of the same config, timed by layer at other lengths: a pass of L layers is predicted as what
lies outside of the layers, plus L times a layer at that length. The runs that are judged (the whole depth, lengths between the
calibrated ones) are never fitted on. All is fp32 on one thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UsageError
from .validate_band import spread_of
from .validate_result import Metric

PREFILL_FIT, PREFILL_JUDGED = (16, 48, 96), (32, 64)
DECODE_FIT, DECODE_JUDGED = (16, 112), (64,)
STEPS = 6


@dataclass(frozen=True, slots=True)
class HfValidation:
    """Metrics are named prefill_32_s (a prompt of 32 tokens) and decode_64_s (one token after 64)."""

    source: str
    weights: str
    experts_implementation: str
    layers: int
    calibrated_layers: int
    metrics: tuple[Metric, ...]
    moe_share: float
    """Of a calibrated layer's decode time, the mixture's part."""
    runtime_over_transformers_x: float | None
    """Tokens a second of our runtime with all experts resident, over transformers'; None for shapes it does not run."""

    def median_ape(self) -> float:
        return float(np.median([metric.ape for metric in self.metrics]))

    def within(self, largest: float) -> bool:
        return self.median_ape() <= largest

    def to_dict(self) -> dict[str, Any]:
        found = {
            "source": self.source, "weights": self.weights, "experts_implementation": self.experts_implementation,
            "layers": self.layers, "calibrated_layers": self.calibrated_layers,
            "metrics": {metric.name: metric.to_dict() for metric in self.metrics}, "median_ape": self.median_ape(),
            "moe_share": self.moe_share, "runtime_over_transformers_x": self.runtime_over_transformers_x,
        }  # fmt: skip
        return {name: value for name, value in found.items() if value is not None}

    def lines(self) -> list[str]:
        found = [
            f"{self.source}: {self.layers} layers, {self.weights} weights, experts as transformers' "
            f"{self.experts_implementation!r}; calibrated on {self.calibrated_layers} layers"
        ]
        for metric in self.metrics:
            found.append(
                f"  {metric.name}: predicted {metric.predicted * 1e3:.2f} ms, measured {metric.measured * 1e3:.2f} ms, "
                f"off by {metric.ape:.1%} (spread {metric.spread or 0:.1%})"
            )
        found.append(
            f"  median error {self.median_ape():.1%}; the mixture is {self.moe_share:.0%} of a layer's decode time"
        )
        if self.runtime_over_transformers_x is not None:
            found.append(
                f"  our runtime, all experts resident: {self.runtime_over_transformers_x:.2f} times its tokens/s"
            )
        return found


def validate_hf(source: str | Path, *, repeats: int = 7, seed: int = 0) -> HfValidation:
    """Build, calibrate, run and compare. Rounds of calibration and of judged runs alternate.

    Raises `UsageError` where the config is of another class or has fewer than 2 layers, `RunError` where it does not fit.
    """
    if repeats < 2:
        raise UsageError(f"a spread needs at least 2 repeats, got {repeats}")
    from ..kernels.runtime.cores import computing
    from ..kernels.runtime.hf import HfModel

    whole = HfModel(source, seed=seed)
    if whole.layers < 2:
        raise UsageError(f"{source}: a shallower model cannot be calibrated on, it has {whole.layers} layer")
    shallow = HfModel(source, layers=-(-whole.layers // 2), seed=seed + 1)
    fit: dict[tuple[str, int], list[Any]] = {}
    judged: dict[tuple[str, int], list[float]] = {}
    with computing():
        for number in range(repeats + 1):
            with shallow.layers_timed():
                _visit(shallow, fit, PREFILL_FIT, DECODE_FIT)
            times: dict[tuple[str, int], list[Any]] = {}
            _visit(whole, times, PREFILL_JUDGED, DECODE_JUDGED)
            for key, values in times.items():
                judged.setdefault(key, []).extend(value.whole_s for value in values)
            if number == 0:  # a warm-up
                fit.clear()
                judged.clear()
    metrics = tuple(
        Metric(
            f"{kind}_{length}_s", _predicted(fit, kind, length, whole.layers, shallow.layers), None, None,
            float(np.median(values)), spread_of(values),
        )
        for (kind, length), values in judged.items()
    )  # fmt: skip
    of_decode = [time for (kind, _), found in fit.items() if kind == "decode" for time in found]
    share = float(np.median([time.moe_s / time.layer_s for time in of_decode]))
    return HfValidation(
        str(source), whole.weights, whole.experts_implementation, whole.layers, shallow.layers, metrics, share,
        _ratio(source, float(np.median(judged["decode", DECODE_JUDGED[0]])), seed),
    )  # fmt: skip


def _visit(
    model: Any, into: dict[tuple[str, int], list[Any]], prompts: tuple[int, ...], contexts: tuple[int, ...]
) -> None:
    for tokens in prompts:
        into.setdefault(("prefill", tokens), []).append(model.prefill(tokens))
    for context in contexts:
        into.setdefault(("decode", context), []).append(model.decode(context, STEPS))


def _predicted(
    fit: dict[tuple[str, int], list[Any]], kind: str, length: int, layers: int, shallow: int
) -> float:
    """Outside of the layers + layers · one layer, each at that length by interpolation between the calibrated ones."""
    lengths = sorted(size for name, size in fit if name == kind)
    of_layer = [float(np.median([time.layer_s for time in fit[kind, size]])) for size in lengths]
    outside = [
        float(np.median([time.whole_s - shallow * time.layer_s for time in fit[kind, size]]))
        for size in lengths
    ]
    return float(np.interp(length, lengths, outside) + layers * np.interp(length, lengths, of_layer))


def _ratio(source: str | Path, transformers_tpot_s: float, seed: int) -> float | None:
    """Our runtime's decode speed at the same shapes, everything resident, over transformers'."""
    from ..kernels.runtime.loop import Runtime
    from ..kernels.runtime.record import STALL
    from ..kernels.runtime.routing import blank_trace
    from ..kernels.runtime.tiers import HostTier
    from ..kernels.runtime.weights import check_supported, random_weights
    from ..sim.blocks import BlockSource
    from ..sim.cache.registry import policy
    from ..sim.catalog import load_model
    from ..sim.engines.run import Setup
    from ..sim.passes import build_passes

    path = Path(source)
    try:
        model = load_model(str(path / "config.json" if path.is_dir() else path))
        check_supported(model)
    except UsageError:
        return None
    weights = random_weights(model, seed=seed)
    layers = len(model.moe_layer_ids)
    trace = blank_trace(
        prompts=np.array([DECODE_JUDGED[0]]), decode_tokens=24, num_layers=layers, num_experts=model.num_experts,
        top_k=model.top_k,
    )  # fmt: skip
    size = weights.shape.row_bytes
    setup = Setup(
        policy("unbounded"),
        np.array([weights.experts_in_all * size]),
        size_per_layer=np.full(layers, size, np.int64),
    )
    with Runtime(model, weights, HostTier(weights)) as runtime:
        found: list[float] = []
        for _ in range(3):
            record = runtime.run(BlockSource(trace, build_passes(trace)), setup, live=True, seed=seed)
            took = (record.pass_end_ns - record.pass_start_ns)[1:]
            waited = record.part_ns[STALL, 1:].sum(axis=1)
            found.extend(took[waited == 0].tolist())  # tokens that met no expert for the first time
    return transformers_tpot_s / (float(np.median(found)) / 1e9) if found else None
