"""Times from a hardware sheet alone: each product takes what its bytes or its operations take, whichever is longer.

A floor, no forecast: kernels reach less than the sheet, launches and norms and softmax cost nothing here. Good for
what offloading is about (bytes over links against bytes of device memory) until a measured profile takes its place
(`profile_prices.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import UsageError
from .estimate import Estimate
from .ffn import MoeFfn
from .formats import WEIGHT_FORMATS, number_format
from .hardware import HardwareSpec, Quantity
from .mixers import Attention, LatentAttention, LinearAttention, Mamba2, Matrix, Mixer
from .ops import AllToAll, Collective, Operation
from .pass_sizes import PassSizes, Seconds


class RooflinePrices:
    """The sheet as a function from bytes and operations to seconds."""

    def __init__(self, hardware: HardwareSpec, activations: str) -> None:
        self.hardware = hardware
        self.bandwidth = hardware.memory_bandwidth.value
        self.activations = number_format(activations)
        self.activation_bytes = float(self.activations.bits) / 8
        self.used: dict[str, Quantity] = {"device memory bandwidth": hardware.memory_bandwidth}

    def peak(self, arithmetic: str) -> float:
        quantity = self.hardware.peak(arithmetic)
        self.used[f"peak {self.hardware.peak_name(arithmetic)} for {arithmetic}"] = quantity
        return quantity.value

    def longer(self, num_bytes: Seconds, flops: Seconds, arithmetic: str) -> Seconds:
        return np.maximum(num_bytes / self.bandwidth, flops / self.peak(arithmetic))

    def estimate(self, operation: Operation) -> Estimate:
        """Any operation, over arrays or for one shape: its floor. Traffic between devices goes over their link.

        Raises `UsageError` for such traffic where the sheet states no link between devices.
        """
        moved = np.asarray(operation.bytes, np.float64)
        if isinstance(operation, AllToAll | Collective):
            link = self.hardware.device_link
            if link is None:
                raise UsageError(f"hardware {self.hardware.name} states no [device_link]: several devices need one")
            most = int(np.max(np.asarray(operation.ranks)))
            if most > link.devices.value:
                raise UsageError(
                    f"{most} ranks exchange data, but {link.name} of {self.hardware.name} joins {link.devices.value:.0f} devices"
                )
            self.used |= {f"device link bandwidth ({link.name})": link.bandwidth, "device link latency": link.latency}
            return Estimate.floor(np.where(moved > 0, link.latency.value + moved / link.bandwidth.value, 0.0))
        return Estimate.floor(self.longer(moved, np.asarray(operation.flops, np.float64), operation.arithmetic))

    def products(self, tokens: Seconds, matrices: Sequence[Matrix], weights: str) -> Seconds:
        """One product after another: each reads its weights once, and its activations in and out."""
        total = np.zeros_like(tokens)
        busy = tokens > 0
        weight_bytes = float(WEIGHT_FORMATS[number_format(weights).name]) / 8
        for rows, columns in matrices:
            moved = rows * columns * weight_bytes * busy + tokens * (rows + columns) * self.activation_bytes
            total += self.longer(moved, 2.0 * rows * columns * tokens, number_format(weights).computes_as)
        return total

    def moved(self, elements: Seconds) -> Seconds:
        return elements * self.activation_bytes / self.bandwidth

    def attention(self, mixer: Attention | LatentAttention, passes: PassSizes) -> Seconds:
        """Scores and weighted sums; keys and values are read once a pass and written once a token."""
        tokens, pairs, cached = passes.tokens, passes.attended(mixer.window), passes.cached(mixer.window)
        if isinstance(mixer, Attention):
            flops = 2.0 * mixer.heads * (mixer.head_dim + mixer.value_dim) * pairs
            row = mixer.heads * (mixer.head_dim + mixer.value_dim)
        else:
            heads, rank, rope = mixer.heads, mixer.kv_rank, mixer.rope_dim
            wide = mixer.nope_dim + mixer.value_dim
            absorbed = 2.0 * heads * (2 * rank + rope) * pairs  # scores on the latent itself: best for decoding
            rebuilt = 2.0 * heads * (wide + rope) * pairs  # keys and values of cached tokens made again: for prompts
            rebuilt = rebuilt + 2.0 * rank * heads * wide * np.maximum(cached - tokens, 0.0)
            flops = np.minimum(absorbed, rebuilt)
            row = heads * (wide + rope)
        elements = (cached + tokens) * mixer.kv_elements_per_token + tokens * row
        return self.longer(elements * self.activation_bytes, flops, self.activations.computes_as)

    def scan(self, mixer: Mamba2 | LinearAttention, passes: PassSizes) -> Seconds:
        """A recurrence: each sequence's state is read and written once a pass."""
        num_bytes = 2.0 * mixer.state_bytes_per_sequence * passes.sequences
        num_bytes = num_bytes + passes.tokens * mixer.conv_channels * self.activation_bytes
        return self.longer(num_bytes, mixer.scan_flops_per_token * passes.tokens, self.activations.computes_as)

    def mixer(self, mixer: Mixer, passes: PassSizes, weights: str) -> Seconds:
        inner = (
            self.scan(mixer, passes) if isinstance(mixer, Mamba2 | LinearAttention) else self.attention(mixer, passes)
        )
        return self.products(passes.tokens, mixer.matrices, weights) + inner

    def copy_s(self, size_bytes: int) -> float:
        """One expert over the host link."""
        return self.hardware.link_latency.value + size_bytes / self.hardware.link_bandwidth.value

    def storage_s(self, size_bytes: int) -> float:
        """One expert read from storage."""
        return self.hardware.storage_latency.value + size_bytes / self.hardware.storage_bandwidth.value

    def resident_experts(self, moe: MoeFfn, tokens: Seconds, weights: str) -> Seconds:
        """All routed experts on the device, under uniform and independent routing."""
        touched = moe.num_experts * (1.0 - (1.0 - moe.top_k / moe.num_experts) ** tokens)
        each = self.products(tokens * moe.top_k / np.maximum(touched, 1.0), moe.expert_matrices, weights)
        return touched * each

    def source(self) -> str:
        """One line: where the times come from."""
        kinds = sorted({quantity.kind for quantity in self.quantities().values()})
        return f"roofline on {' and '.join(kinds)} numbers of {self.hardware.name}: a floor, real kernels take longer"

    def quantities(self) -> dict[str, Quantity]:
        """Every number of the sheet that was used, by what it was used for."""
        hardware = self.hardware
        return {
            **self.used,
            f"host link bandwidth ({hardware.host_link})": hardware.link_bandwidth,
            "host link latency": hardware.link_latency,
            "copy engines to the device": hardware.copy_engines,
            f"storage bandwidth ({hardware.storage})": hardware.storage_bandwidth,
            "storage latency": hardware.storage_latency,
        }

    def provenance(self) -> list[dict[str, object]]:
        """The same as rows: name, value, unit, kind, source."""
        return [
            {"name": name, "value": q.value, "unit": q.unit, "kind": q.kind, "source": q.source}
            for name, q in self.quantities().items()
        ]
