"""A kernel beside its reference: the device the kernels run on here, and memory that is full of NaN before they write."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from codesign.kernels.gpu.launch import INTERPRETED
from codesign.kernels.reference.agreement import ALLOWED_ROUNDINGS, TRUNCATION, disagreement
from torch import Tensor

DEVICE = "cpu" if INTERPRETED.value else "cuda"
ALLOWED = ALLOWED_ROUNDINGS * (TRUNCATION if INTERPRETED.value else 1.0)
FORMATS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator(DEVICE).manual_seed(seed)


def twins(name: str) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """(Triton kernel, reference) of that name."""
    fast, slow = (importlib.import_module(f"codesign.kernels.{home}.{name}") for home in ("gpu", "reference"))
    return getattr(fast, name), getattr(slow, name)


@contextmanager
def memory_full_of_nan() -> Iterator[None]:
    """torch.empty gives NaN (integers: their largest), so an element that a kernel forgets to write is seen."""
    was = torch.utils.deterministic.fill_uninitialized_memory
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3, device=DEVICE).isnan().all()
        yield
    finally:
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = was


def roundings_apart(name: str, inputs: dict[str, Any]) -> float:
    """How far kernel and reference are apart, in roundings of the format."""
    fast, slow = twins(name)
    with memory_full_of_nan():
        result = fast(**inputs)
    return disagreement(result, slow(**inputs))
