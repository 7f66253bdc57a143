"""What designs cost at an operating point, by part: time with its band, bytes read, bytes between devices, memory, bound.

Parts of a pass, summed over its layers: `mixers` (projections included), `router`, `shared`, `projections` (down to the
latent width and up again), `dispatch`, `experts`, `combine` (its traffic and the weighted sum), `all-reduce` (tensor
parallel), `rest` (embedding, dense layers, head). Norms and launches cost what the profile's kernels hold of them.
Bands of parts are added as if they erred together, which is never too narrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ..estimate import EXTRAPOLATED, ROOFLINE, Estimate
from ..ffn import DenseFfn
from ..formats import WEIGHT_FORMATS, number_format
from ..model import Layer, ModelSpec
from ..ops import AllToAll, Collective, Gemm, GroupedGemm
from ..profile_prices import ProfilePrices
from ..roofline import RooflinePrices
from .columns import Designs
from .point import OperatingPoint
from .resize import sharded

Floats = NDArray[np.float64]
PARTS = ("mixers", "router", "shared", "projections", "dispatch", "experts", "combine", "all-reduce", "rest")
OF_MIXTURE = ("router", "shared", "projections", "dispatch", "experts", "combine")
BOUNDS = ("weights", "kv", "compute", "link")
"""What a part waits for: memory (weights, and activations beside them), keys and values, arithmetic, traffic between devices."""


@dataclass
class Part:
    """Seconds of one part of a pass over all its layers, [R]; `measured` [R] of them stand on a profile."""

    seconds: Floats
    low: Floats
    high: Floats
    measured: Floats
    bound: dict[str, Floats]
    """Seconds by what they wait for, names of `BOUNDS`."""
    beyond: NDArray[np.bool_]
    """[R] whether some of it lies outside what the profile measured."""

    @classmethod
    def nothing(cls, rows: int) -> Part:
        return cls(np.zeros(rows), np.zeros(rows), np.zeros(rows), np.zeros(rows), {}, np.zeros(rows, np.bool_))

    def add(self, estimate: Estimate, times: Floats | float, waits: Sequence[tuple[str, Any]]) -> None:
        """`times`: how often in a pass. `waits`: (bound, where it is the one) pairs, masks [R]."""
        seconds = np.asarray(estimate.seconds * times, np.float64)
        self.seconds = self.seconds + seconds
        self.low = self.low + estimate.low * times
        self.high = self.high + estimate.high * times
        self.measured = self.measured + np.where(estimate.how == ROOFLINE, 0.0, seconds)
        self.beyond = self.beyond | ((estimate.how == EXTRAPOLATED) & (np.asarray(times) > 0))
        for name, where in waits:
            self.bound[name] = self.bound.get(name, 0.0) + np.where(where, seconds, 0.0)


@dataclass(frozen=True)
class DesignCosts:
    """Of R designs at one operating point. Times are of one pass of all replicas, which run side by side."""

    point: OperatingPoint
    parts: dict[str, Part]
    expert_bytes_read: Floats
    """Of one MoE layer, on one device: weights of the distinct experts touched."""
    experts_touched: Floats
    """Distinct experts of one MoE layer that the pass touches, over all devices."""
    all_to_all_bytes: Floats
    """Dispatch and combine of one MoE layer, what one device sends."""
    memory_bytes: Floats
    """On one device: weights, KV cache and state of its sequences."""

    @property
    def seconds(self) -> Floats:
        return np.asarray(sum(part.seconds for part in self.parts.values()))

    @property
    def low(self) -> Floats:
        return np.asarray(sum(part.low for part in self.parts.values()))

    @property
    def high(self) -> Floats:
        return np.asarray(sum(part.high for part in self.parts.values()))

    @property
    def measured_share(self) -> Floats:
        """Of the time, what a profile answered for; the rest is a floor of the hardware sheet."""
        return np.asarray(
            sum(part.measured for part in self.parts.values()) / np.maximum(self.seconds, 1e-30)
        )

    @property
    def extrapolated(self) -> NDArray[np.bool_]:
        """[R] whether some part lies outside what the profile measured; its band is wider for it."""
        return np.asarray(np.any([part.beyond for part in self.parts.values()], axis=0))

    @property
    def tokens_per_s_per_device(self) -> Floats:
        return self.point.tokens / self.seconds / self.point.layout.devices

    def mixture_seconds(self) -> Floats:
        """The parts of the MoE layers alone."""
        return np.asarray(sum(self.parts[name].seconds for name in OF_MIXTURE))

    def bound_seconds(self, of: Sequence[str] = PARTS) -> dict[str, Floats]:
        """Seconds of the named parts by what they wait for."""
        rows = len(self.experts_touched)
        total = {name: np.zeros(rows) for name in BOUNDS}
        for part in of:
            for name, seconds in self.parts[part].bound.items():
                total[name] = total[name] + seconds
        return total

    def bound_by(self, of: Sequence[str] = PARTS) -> NDArray[Any]:
        """[R] names of `BOUNDS`: what most of the time waits for."""
        seconds = self.bound_seconds(of)
        return np.asarray(np.array(BOUNDS)[np.argmax(np.stack([seconds[name] for name in BOUNDS]), axis=0)])


def design_costs(designs: Designs, point: OperatingPoint, prices: RooflinePrices) -> DesignCosts:
    """Cost all designs at a point. Raises `UsageError` for a layout that does not fit a design, or a lacking link."""
    _fits(designs, point)
    parts = {name: Part.nothing(len(designs)) for name in PARTS}
    _mixture(designs, point, prices, parts)
    _around(designs, point, prices, parts)
    routed = _routed(designs, point)
    touched = np.asarray(routed.expected_distinct, np.float64) * point.layout.ep
    sent = sum(np.asarray(_all_to_all(designs, point, phase).bytes, np.float64) for phase in ("dispatch", "combine"))
    return DesignCosts(
        point, parts, np.asarray(routed.weight_bytes, np.float64), touched, np.asarray(sent), memory_bytes(designs, point)
    )


def _fits(designs: Designs, point: OperatingPoint) -> None:
    layout = point.layout
    for what, counts, ranks in (
        ("experts", designs.experts, layout.ep), ("expert width", designs.width, layout.expert_tp),
        ("shared width", designs.shared, layout.tp),
    ):  # fmt: skip
        wrong = counts[counts % ranks != 0]
        if len(wrong):
            raise UsageError(
                f"operating point {point.name}, {layout.text()}: {what} {int(wrong[0])} cannot be dealt out over {ranks} ranks"
            )


def _beside(name: str, activations: str) -> str:
    """Activations that meet weights of a format: 8-bit and nvfp4 products take them in the same."""
    return name if name in ("fp8", "int8", "nvfp4") else activations


def _routed(designs: Designs, point: OperatingPoint) -> GroupedGemm:
    name = number_format(point.weights).name
    return GroupedGemm(
        np.asarray(point.tokens, np.float64), designs.expert_width, designs.width, designs.experts, designs.top_k,
        gated=designs.mixture.gated, tp=point.layout.expert_tp, ep=point.layout.ep, distribution=point.load,
        weights=name, activations=_beside(name, point.activations),
    )  # fmt: skip


def _all_to_all(designs: Designs, point: OperatingPoint, phase: Any) -> AllToAll:
    """What one device sends: the tokens of its replica are shared out over the ranks that hold them all."""
    own = np.asarray(point.tokens_of_replica / point.layout.tp)
    form = point.dispatch if phase == "dispatch" else point.activations
    return AllToAll(
        own, designs.expert_width, designs.top_k, designs.experts, point.layout.ep, phase, form, point.deduplicate
    )  # fmt: skip


def _mixture(
    designs: Designs, point: OperatingPoint, prices: RooflinePrices, parts: dict[str, Part]
) -> None:
    layers, own, tp = designs.moe_layers, np.asarray(point.tokens_of_replica, np.float64), point.layout.tp
    hidden, resident = designs.hidden, number_format(point.resident_weights).name

    def product(part: str, outputs: Any, inputs: Any, weights: str) -> None:
        """A product that designs without it (0 outputs) do not run."""
        there = (np.asarray(outputs) > 0) & (np.asarray(inputs) > 0)
        n, k = np.where(there, outputs, 1), np.where(there, inputs, 1)
        gemm = Gemm(own, n, k, weights, _beside(weights, point.activations))
        parts[part].add(
            prices.estimate(gemm), np.where(there, layers, 0.0), _memory_or_compute(prices, gemm)
        )

    product("router", designs.experts, hidden, "bf16")
    product("shared", (designs.matrices - 1) * designs.shared / tp, hidden, resident)
    product("shared", hidden, designs.shared / tp, resident)
    product("projections", designs.latent, hidden, resident)
    product("projections", hidden, designs.latent, resident)
    routed = _routed(designs, point)
    parts["experts"].add(prices.estimate(routed), layers, _memory_or_compute(prices, routed))
    everywhere = np.ones(len(designs), np.bool_)
    if point.layout.ep > 1:
        for phase in ("dispatch", "combine"):
            traffic = prices.estimate(_all_to_all(designs, point, phase))
            parts[phase].add(traffic, layers, (("link", everywhere),))
    summed = Estimate.floor(prices.moved(own * (designs.top_k + 1) * designs.expert_width))
    parts["combine"].add(summed, layers, (("weights", everywhere),))  # rows moved through memory, no arithmetic to speak of


def _memory_or_compute(prices: RooflinePrices, operation: Any) -> tuple[tuple[str, Any], ...]:
    """On which side of the roof an operation lies: its weights and activations, or its arithmetic."""
    memory = np.asarray(operation.bytes, np.float64) / prices.bandwidth
    compute = np.asarray(operation.flops, np.float64) / prices.peak(operation.arithmetic)
    return ("weights", memory >= compute), ("compute", memory < compute)


def _around(designs: Designs, point: OperatingPoint, prices: RooflinePrices, parts: dict[str, Part]) -> None:
    """What surrounds the mixtures: once for each skeleton, then handed to its designs."""
    which, rows = designs.skeleton, len(designs)
    sizes, tp = point.pass_sizes(), point.layout.tp
    resident = number_format(point.resident_weights).name
    decode = point.phase == "decode"
    for part, price in (("mixers", _mixers), ("rest", _rest)):
        each = [_three(prices, partial(price, model, prices, sizes, tp, resident)) for model in designs.skeletons]
        seconds, low, high = (
            np.array([getattr(one, edge) for one in each])[which] for edge in ("seconds", "low", "high")
        )
        whole = Estimate(seconds, low, high, np.array([one.how for one in each])[which])
        cached = np.array([part == "mixers" and decode and _kv_bound(m, point) for m in designs.skeletons])[which]
        rest = "weights" if decode else "compute"
        parts[part].add(whole, 1.0, (("kv", cached), (rest, ~cached)))
    if tp > 1:
        row_bytes = designs.hidden * float(number_format(point.activations).bits) / 8
        reduced = Collective("all_reduce", point.tokens_of_replica * row_bytes, tp)
        count = np.array([_reductions(model) for model in designs.skeletons])[which]
        parts["all-reduce"].add(prices.estimate(reduced), count, (("link", np.ones(rows, np.bool_)),))


def _kv_bound(model: ModelSpec, point: OperatingPoint) -> bool:
    """Whether a decode pass reads more of keys, values and states than of mixers' weights."""
    own = point.batch // point.layout.dp
    cached = own * (model.kv_bytes(point.context) + model.state_bytes_per_sequence)
    weights = sum(r * c for layer in model.layers if layer.mixer is not None for r, c in layer.mixer.matrices)
    return bool(cached > weights * float(WEIGHT_FORMATS[number_format(point.resident_weights).name]) / 8)


def _three(prices: RooflinePrices, total: Callable[[], Any]) -> Estimate:
    """A sum of the prices' own, at the middle and at both ends of the band."""
    if not isinstance(prices, ProfilePrices):
        return Estimate.floor(np.asarray(float(total())))
    found = {}
    edges: tuple[Literal["seconds", "low", "high"], ...] = ("seconds", "low", "high")
    for edge in edges:
        prices.edge = edge
        found[edge] = np.asarray(float(total()))
    prices.edge = "seconds"
    measured = bool(found["high"] > found["low"])
    return Estimate(
        found["seconds"], found["low"], found["high"], np.asarray(1 if measured else ROOFLINE, np.int8)
    )


def _mixers(model: ModelSpec, prices: RooflinePrices, sizes: Any, tp: int, resident: str) -> float:
    total, known = 0.0, {}
    for layer in model.layers:
        if layer.mixer is None:
            continue
        if layer.mixer not in known:
            known[layer.mixer] = float(prices.mixer(sharded(layer.mixer, tp), sizes, resident)[0])
        total += known[layer.mixer]
    return total


def _rest(model: ModelSpec, prices: RooflinePrices, sizes: Any, tp: int, resident: str) -> float:
    total = float(np.sum(prices.moved(2.0 * sizes.tokens * model.hidden)))
    dense = [layer.ffn for layer in model.layers if isinstance(layer.ffn, DenseFfn)]
    for ffn in set(dense):
        cut = tuple((r if r == ffn.hidden else r // tp, c if c == ffn.hidden else c // tp) for r, c in ffn.matrices)
        total += dense.count(ffn) * float(prices.products(sizes.tokens, cut, resident)[0])
    return total + float(prices.products(sizes.head_rows, ((model.hidden, model.vocab // tp),), "bf16")[0])


def _reductions(model: ModelSpec) -> int:
    """All-reduces of a pass under tensor parallelism: one after each mixer and each feed-forward."""

    def of(layer: Layer) -> int:
        return (layer.mixer is not None) + (layer.ffn is not None)

    return sum(of(layer) for layer in model.layers)


def memory_bytes(designs: Designs, point: OperatingPoint) -> Floats:
    """On one device: its share of experts, the rest of the weights (tensor-parallel parts divided), KV cache and state."""
    layout, form = point.layout, float(WEIGHT_FORMATS[number_format(point.weights).name]) / 8
    resident = float(WEIGHT_FORMATS[number_format(point.resident_weights).name]) / 8
    experts = designs.experts * designs.expert_params * designs.moe_layers * form / layout.devices
    shared = designs.shared_params * designs.moe_layers * resident / layout.tp
    whole = (designs.router_params * 2.0 + designs.latent_params * resident) * designs.moe_layers
    own = point.batch // layout.dp
    around = np.array([_around_bytes(model, point, own, resident) for model in designs.skeletons])
    return np.asarray(experts + shared + whole + around[designs.skeleton])


def _around_bytes(model: ModelSpec, point: OperatingPoint, own: int, resident: float) -> float:
    tp = point.layout.tp
    matrices = sum(r * c for layer in model.layers if layer.mixer for r, c in layer.mixer.matrices)
    matrices += sum(layer.ffn.weights for layer in model.layers if isinstance(layer.ffn, DenseFfn))
    held = model.resident_params - sum(
        layer.moe.resident_weights for layer in model.layers if layer.moe is not None
    )
    kept = float(number_format(point.activations).bits)
    cache = own * (model.kv_bytes(point.context, int(kept)) / min(tp, _kv_heads(model)) + model.state_bytes_per_sequence / tp)
    return matrices * resident / tp + (held - matrices) * 2.0 / (tp if tp > 1 else 1) + cache


def _kv_heads(model: ModelSpec) -> int:
    """Ranks over which keys and values can be dealt out; a latent cache is held whole by each."""
    found = [getattr(layer.mixer, "kv_heads", 1) for layer in model.layers if layer.mixer is not None
             and layer.mixer.kv_elements_per_token]  # fmt: skip
    return max(1, min(found, default=1))
