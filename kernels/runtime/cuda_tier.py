"""Experts in pinned host memory, copied to the device on a stream of their own, beside the one that computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import RunError
from .weights import Weights

if TYPE_CHECKING:
    from torch import Tensor


class CudaTier:
    """Pinned rows; a copy is asynchronous on the side stream, and `fetch` waits for its event without holding the interpreter."""

    name = "cuda"

    def __init__(self, weights: Weights, device: str = "cuda") -> None:
        """Raises `RunError` where there is no CUDA device or no memory to pin."""
        import torch

        if not torch.cuda.is_available():
            raise RunError("no CUDA device: the cuda tier cannot run here (host, paced and file can)")
        count = weights.experts_in_all
        try:
            self._rows_XE: Tensor | None = torch.empty(
                (count, weights.shape.row_bytes), dtype=torch.uint8, pin_memory=True
            )
        except RuntimeError as error:
            raise RunError(
                f"cannot pin {count * weights.shape.row_bytes} bytes of host memory: {error}"
            ) from error
        for expert in range(count):
            self._rows_XE[expert] = torch.from_numpy(weights.expert_row(expert).copy())
        self._device = torch.device(device)
        self._stream = torch.cuda.Stream(self._device)
        self._event = torch.cuda.Event(blocking=True)

    def start(self) -> None:
        """The copy thread must name its device itself."""
        import torch

        torch.cuda.set_device(self._device)

    def fetch(self, expert: int, into: Any, asked_ns: int) -> None:
        import torch

        if self._rows_XE is None:
            raise RunError("the cuda tier is closed")
        try:
            with torch.cuda.stream(self._stream):
                into.copy_(self._rows_XE[expert], non_blocking=True)
                self._event.record(self._stream)
            self._event.synchronize()
        except RuntimeError as error:
            raise RunError(f"the copy of expert {expert} to {self._device} failed: {error}") from error

    def close(self) -> None:
        self._rows_XE = None
