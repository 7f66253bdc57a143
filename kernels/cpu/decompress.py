"""Lossless compression of bf16 weights by planes (as in ZipMoE): exponents by zstd, sign and mantissa as they are.

A bf16 is sign (1), exponent (8), mantissa (7 bits). Exponents of trained weights crowd around a few values, the rest is
noise; so only the exponent plane is compressed, in frames of one MiB that cores can work on independently.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import zstandard
from torch import Tensor

from ...errors import UsageError
from .compiled import plain, serial

Array = Any
FRAME_WEIGHTS = 2**20
"""Weights a frame: long enough that zstd's tables cost nothing, short enough that two cores share one expert."""


@dataclass(frozen=True, slots=True)
class CompressedWeights:
    """`shape` of bf16 weights as two planes. `frames` hold `FRAME_WEIGHTS` exponents each, the last one what is left."""

    shape: tuple[int, ...]
    sign_mantissa_E: Array
    frames: tuple[bytes, ...]

    @property
    def ratio(self) -> float:
        """Bytes of the compressed exponent plane over those of the plain one."""
        return sum(len(frame) for frame in self.frames) / max(len(self.sign_mantissa_E), 1)

    @property
    def stored_bytes(self) -> int:
        return len(self.sign_mantissa_E) + sum(len(frame) for frame in self.frames)


def compress(weights: Tensor, *, level: int = 1) -> CompressedWeights:
    """The planes of bf16 weights. Raises `UsageError` for another format: only bf16 has this split."""
    if weights.dtype != torch.bfloat16:
        raise UsageError(f"only bf16 weights have an exponent plane of 8 bits, got {weights.dtype}")
    bits_E = plain(weights).reshape(-1)
    exponents = ((bits_E >> 7) & 0xFF).astype(np.uint8)
    rest = (((bits_E >> 8) & 0x80) | (bits_E & 0x7F)).astype(np.uint8)
    packer = zstandard.ZstdCompressor(level=level)
    starts = range(0, len(exponents), FRAME_WEIGHTS)
    frames = tuple(packer.compress(exponents[start : start + FRAME_WEIGHTS].tobytes()) for start in starts)
    return CompressedWeights(tuple(weights.shape), rest, frames)


def decompress(packed: CompressedWeights) -> Tensor:
    """The very weights, bit for bit, with as many threads as torch was given. Raises `UsageError` for a torn frame."""
    count = len(packed.sign_mantissa_E)
    bits_E = np.empty(count, np.uint16)
    if count:
        _merge_frames(packed, bits_E)
    return torch.from_numpy(bits_E).view(torch.bfloat16).reshape(packed.shape)


def _merge_frames(packed: CompressedWeights, bits_E: Array) -> None:
    """Frame after frame: what was unpacked stays in the cache until it is merged. Threads take frames, zstd frees the lock."""
    starts = range(0, len(bits_E), FRAME_WEIGHTS)
    if len(starts) != len(packed.frames):
        raise UsageError(
            f"{len(packed.frames)} frames of exponents, expected {len(starts)} for {len(bits_E)} weights"
        )

    def one(start: int, frame: bytes) -> None:
        rest = packed.sign_mantissa_E[start : start + FRAME_WEIGHTS]
        try:
            exponents = np.frombuffer(zstandard.ZstdDecompressor().decompress(frame), np.uint8)
        except zstandard.ZstdError as error:
            raise UsageError(f"a frame of the exponent plane is torn: {error}") from error
        if len(exponents) != len(rest):
            raise UsageError(f"a frame holds {len(exponents)} exponents, expected {len(rest)}")
        _merge(exponents, rest, bits_E[start : start + FRAME_WEIGHTS])

    threads = min(torch.get_num_threads(), len(packed.frames))
    if threads == 1:
        for start, frame in zip(starts, packed.frames, strict=True):
            one(start, frame)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(one, starts, packed.frames))


@serial
def _merge(exponents_E: Array, rest_E: Array, bits_E: Array) -> None:
    for i in range(len(bits_E)):
        rest = np.uint16(rest_E[i])
        bits_E[i] = ((rest & 0x80) << 8) | (np.uint16(exponents_E[i]) << 7) | (rest & 0x7F)
