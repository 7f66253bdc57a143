"""Number formats and what a weight costs in each, scales included (case B14). Exact: fractions, never floats.

A block format stores a group of weights with its scale; the bits below are the whole group over its weights.
Per-tensor scales (one number a matrix) are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from ..errors import unknown_name


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """`bits` per value, scales included; `computes_as` is the arithmetic that uses it."""

    name: str
    bits: Fraction
    computes_as: str
    source: str


def _block(weights: int, payload_bits: int, scale_bits: int) -> Fraction:
    """Bits per weight of a block of `weights` values with `scale_bits` of scales beside them."""
    return Fraction(weights * payload_bits + scale_bits, weights)


_GGML = "ggml block layouts (ggml-common.h): "
_FORMATS = (
    NumberFormat("fp32", Fraction(32), "fp32", "IEEE 754 binary32"),
    NumberFormat("fp16", Fraction(16), "fp16", "IEEE 754 binary16"),
    NumberFormat("bf16", Fraction(16), "bf16", "upper half of binary32"),
    NumberFormat("fp8", Fraction(8), "fp8", "OCP FP8 E4M3/E5M2, per-tensor scale"),
    NumberFormat("int8", Fraction(8), "int8", "8-bit integers, per-tensor or per-row scale"),
    NumberFormat("fp8_block", _block(128 * 128, 8, 32), "fp8", "DeepSeek-V3: one fp32 scale per 128 × 128 weights"),
    NumberFormat("mxfp8", _block(32, 8, 8), "fp8", "OCP MX: one E8M0 scale per 32 weights"),
    NumberFormat("q8_0", _block(32, 8, 16), "int8", _GGML + "32 weights, one fp16 scale"),
    NumberFormat("q6_k", _block(256, 6, 16 * 8 + 16), "int8", _GGML + "256 weights, 16 int8 scales, one fp16"),
    NumberFormat("q4_k", _block(256, 4, 12 * 8 + 32), "int8", _GGML + "256 weights, 12 bytes of scales, two fp16"),
    NumberFormat("q4_0", _block(32, 4, 16), "int8", _GGML + "32 weights, one fp16 scale"),
    NumberFormat("q4", _block(32, 4, 16), "int8", "the same as q4_0"),
    NumberFormat("int4_g128", _block(128, 4, 16 + 4), "bf16", "AWQ/GPTQ: fp16 scale and 4-bit zero per 128 weights"),
    NumberFormat("nvfp4", _block(16, 4, 8), "fp4", "NVFP4: one 8-bit scale per 16 weights (ai-dynamo/aiconfigurator #391)"),
    NumberFormat("mxfp4", _block(32, 4, 8), "fp4", "OCP MX: one E8M0 scale per 32 weights"),
)  # fmt: skip

WEIGHT_FORMATS: Mapping[str, Fraction] = MappingProxyType({f.name: f.bits for f in _FORMATS})
"""Format → bits per weight, scales included."""

_BY_NAME: Mapping[str, NumberFormat] = MappingProxyType({f.name: f for f in _FORMATS})


def number_format(name: str) -> NumberFormat:
    """The format of that name, in any case. Raises `UsageError` naming the nearest known one."""
    found = _BY_NAME.get(name.lower())
    if found is None:
        raise unknown_name("number format", name, _BY_NAME)
    return found


def bytes_of(weights: int, format: str) -> int:
    """Bytes that `weights` values take in `format`, scales included, rounded up.

    4096 × 14336 weights in nvfp4 are 33,030,144 bytes, not 29,360,128.
    """
    bits = number_format(format).bits * weights
    return -((-bits.numerator) // (bits.denominator * 8))
