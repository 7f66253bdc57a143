"""Moving bytes: copies between tiers, reads from storage, lossless decompression of exponent planes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ._work import Size, Work, number, tidy


@dataclass(frozen=True, slots=True)
class Copy:
    """`size_bytes` from one tier to another (device, host, storage). Unpinned host memory is staged by the driver."""

    size_bytes: Size
    source: str = "host"
    target: str = "device"
    pinned: bool = True

    name: ClassVar[str] = "copy"

    @property
    def flops(self) -> Work:
        return tidy(0.0 * number(self.size_bytes))

    @property
    def bytes(self) -> Work:
        """Bytes that cross the link; within one tier they are read and written there: twice."""
        return tidy(number(self.size_bytes) * (2 if self.source == self.target else 1))

    @property
    def arithmetic(self) -> str:
        return "fp32"


@dataclass(frozen=True, slots=True)
class StorageRead:
    """`size_bytes` from storage in requests of `block_bytes`; `cached`: from the page cache."""

    size_bytes: Size
    block_bytes: Size
    cached: bool = False

    name: ClassVar[str] = "storage_read"

    @property
    def requests(self) -> Work:
        return tidy(-(-number(self.size_bytes) // number(self.block_bytes)))

    @property
    def flops(self) -> Work:
        return tidy(0.0 * number(self.size_bytes))

    @property
    def bytes(self) -> Work:
        return tidy(number(self.size_bytes))

    @property
    def arithmetic(self) -> str:
        return "fp32"


@dataclass(frozen=True, slots=True)
class Decompress:
    """bf16 weights whose exponents (8 of 16 bits) were compressed to `ratio` of their size; the rest is stored plain.

    The default is what zstd level 1 reaches on the exponents of normally distributed weights (measured here, and
    `docs/calibration.md` says how); their entropy is 2.5 of 8 bits, a ratio of 0.31.
    """

    weights: Size
    ratio: float = 0.36
    codec: str = "rans"

    name: ClassVar[str] = "decompress"

    @property
    def flops(self) -> Work:
        """Per weight: one table look-up or state step, and the merge of the two planes (mask, shift, or): 4."""
        return tidy(4.0 * number(self.weights))

    @property
    def compressed_bytes(self) -> Work:
        """What is read: sign and mantissa (1 byte a weight) and the compressed exponents."""
        return tidy(number(self.weights) * (1.0 + self.ratio))

    @property
    def bytes(self) -> Work:
        """Compressed planes in, bf16 out."""
        return tidy(number(self.compressed_bytes) + 2.0 * number(self.weights))

    @property
    def arithmetic(self) -> str:
        return "fp32"
