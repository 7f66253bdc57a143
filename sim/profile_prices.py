"""Prices from measurements: what a profile has measured or fitted answers, the hardware sheet answers the rest.

Each answer is noted with how it is known, so that a result can say which part of it stands on measurements. Copies and
storage come from the profile where it measured them, else from the sheet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from .estimate import HOW, ROOFLINE, Estimate
from .ffn import MoeFfn
from .formats import number_format
from .hardware import HardwareSpec
from .mixers import Attention, LatentAttention, LinearAttention, Mamba2, Matrix
from .ops import Copy, DecodeAttention, Gemm, GroupedGemm, Operation, PrefillAttention, Scan, StorageRead
from .ops import LinearAttention as LinearAttentionOp
from .pass_sizes import PassSizes, Seconds
from .profile import Profile
from .roofline import RooflinePrices

_STORAGE_BLOCK_BYTES = 1 << 20


class ProfilePrices(RooflinePrices):
    """A profile over a sheet. `framework` chooses among the engines that the profile holds."""

    def __init__(
        self, hardware: HardwareSpec, activations: str, profile: Profile, framework: str | None = None
    ) -> None:
        super().__init__(hardware, activations)
        self.profile, self.framework = profile, framework
        self.edge: Literal["seconds", "low", "high"] = "seconds"
        """Which end of the band the sums of `model_costs.py` are made of."""
        self.answers: dict[tuple[str, str], list[float]] = {}
        """(operation, how it is known) → half widths of the bands, as fractions, one per query."""

    def estimate(self, operation: Operation) -> Estimate:
        """The profile's answer; the sheet's floor where the profile has nothing but the roofline."""
        return self._answer(operation, super().estimate(operation).seconds)

    def _measured(self, operation: Operation, sheet: Seconds) -> Seconds:
        found = self._answer(operation, sheet)
        return {"seconds": found.seconds, "low": found.low, "high": found.high}[self.edge]

    def _answer(self, operation: Operation, sheet: Seconds) -> Estimate:
        if operation.name not in self.profile.laws:
            self.answers.setdefault((operation.name, "roofline"), [])
            return Estimate.floor(np.asarray(sheet, np.float64))
        found: Estimate = self.profile.query(operation, framework=self.framework)
        how = np.broadcast_to(found.how, np.shape(sheet))
        for code in np.unique(how):
            half = (np.asarray(found.high - found.low) / (2.0 * np.asarray(found.seconds))).reshape(-1)
            chosen = half if half.size == 1 else half[np.asarray(how).reshape(-1) == code]
            bands = self.answers.setdefault((operation.name, HOW[int(code)]), [])
            if int(code) != ROOFLINE:
                bands.append(float(np.median(chosen)))
        floor = how == ROOFLINE
        seconds, low, high = (
            np.asarray(np.where(floor, sheet, part), np.float64) for part in (found.seconds, found.low, found.high)
        )
        return Estimate(seconds, low, high, np.asarray(how))

    def products(self, tokens: Seconds, matrices: Sequence[Matrix], weights: str) -> Seconds:
        total = np.zeros_like(tokens)
        busy = tokens > 0
        name = number_format(weights).name
        for inputs, outputs in matrices:
            sheet = super().products(tokens[busy], ((inputs, outputs),), weights)
            gemm = Gemm(tokens[busy], outputs, inputs, name, self._beside(name))
            total[busy] += self._measured(gemm, sheet) if busy.any() else 0.0
        return total

    def _beside(self, weights: str) -> str:
        """Format of the activations in a product: 8-bit products take 8-bit activations where engines quantise them."""
        return weights if weights in ("fp8", "int8", "nvfp4") else self.activations.name

    def attention(self, mixer: Attention | LatentAttention, passes: PassSizes) -> Seconds:
        seconds = super().attention(mixer, passes)
        decode = passes.rows <= 1.0
        if decode.any():
            batch, context = passes.sequences[decode], passes.last[decode]
            seconds[decode] = self._measured(self._decode(mixer, batch, context), seconds[decode])
        if not decode.all():
            prompt = ~decode
            batch, rows = passes.sequences[prompt], passes.rows[prompt]
            prefix = np.maximum(passes.first[prompt] - 1.0, 0.0)
            seconds[prompt] = self._measured(self._prefill(mixer, batch, rows, prefix), seconds[prompt])
        return seconds

    def _decode(self, mixer: Attention | LatentAttention, batch: Any, context: Any) -> DecodeAttention:
        if isinstance(mixer, Attention):
            return DecodeAttention(batch, context, mixer.heads, mixer.kv_heads, mixer.head_dim,
                                   _unless(mixer.value_dim, mixer.head_dim), mixer.window)  # fmt: skip
        return DecodeAttention(batch, context, mixer.heads, 1, mixer.kv_rank + mixer.rope_dim, mixer.kv_rank,
                               mixer.window, shared_kv=True)  # fmt: skip

    def _prefill(self, mixer: Attention | LatentAttention, batch: Any, rows: Any, prefix: Any) -> PrefillAttention:
        prefix = prefix if np.any(prefix > 0) else 0
        if isinstance(mixer, Attention):
            return PrefillAttention(batch, rows, mixer.heads, mixer.kv_heads, mixer.head_dim,
                                    _unless(mixer.value_dim, mixer.head_dim), mixer.window, prefix)  # fmt: skip
        return PrefillAttention.mla(batch, rows, mixer.heads, mixer.nope_dim, mixer.rope_dim, mixer.value_dim,
                                    prefix=prefix)  # fmt: skip

    def scan(self, mixer: Mamba2 | LinearAttention, passes: PassSizes) -> Seconds:
        sheet = super().scan(mixer, passes)
        if isinstance(mixer, Mamba2):
            operation: Any = Scan(passes.sequences, passes.rows, mixer.heads, mixer.head_dim, mixer.groups, mixer.state)
        else:
            operation = LinearAttentionOp(
                passes.sequences, passes.rows, mixer.key_heads, mixer.value_heads, mixer.key_dim, mixer.value_dim
            )
        return self._measured(operation, sheet)

    def resident_experts(self, moe: MoeFfn, tokens: Seconds, weights: str) -> Seconds:
        sheet = super().resident_experts(moe, tokens, weights)
        name = number_format(weights).name
        grouped = GroupedGemm(
            tokens, moe.expert_width, moe.intermediate, moe.num_experts, moe.top_k, moe.gated,
            weights=name, activations=self._beside(name),
        )  # fmt: skip
        return self._measured(grouped, sheet)

    def copy_s(self, size_bytes: int) -> float:
        sheet = np.asarray([super().copy_s(size_bytes)])
        return float(self._measured(Copy(np.asarray([float(size_bytes)])), sheet)[0])

    def storage_s(self, size_bytes: int) -> float:
        sheet = np.asarray([super().storage_s(size_bytes)])
        read = StorageRead(np.asarray([float(size_bytes)]), _STORAGE_BLOCK_BYTES)
        return float(self._measured(read, sheet)[0])

    def source(self) -> str:
        known = sorted({operation for operation, how in self.answers if how != "roofline"})
        lacking = sorted({operation for operation, how in self.answers if how == "roofline"})
        text = f"measured profile of {self.profile.system} for {', '.join(known) or 'nothing asked here'}"
        return text + (f"; roofline of {self.hardware.name} for {', '.join(lacking)}" if lacking else "")

    def provenance(self) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = []
        for (operation, how), bands in sorted(self.answers.items()):
            row: dict[str, object] = {"name": f"{operation}: {how}", "kind": how, "source": self._source_of(operation, how)}
            if bands:
                row |= {"value": 100.0 * float(np.median(bands)), "unit": "% half width of the 90 % band, median"}
            rows.append(row)
        return rows + super().provenance()

    def _source_of(self, operation: str, how: str) -> str:
        if how == "roofline":
            return f"hardware sheet {self.hardware.name}"
        about = self.profile.about.get("measured", {}).get(operation, {})
        return str(about.get("source", f"profile of {self.profile.system}"))


def _unless(value: int, same: int) -> int | None:
    """A value width is stated where it differs from the keys'."""
    return None if value == same else value
