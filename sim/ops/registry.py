"""The one table of operations: name → class, its shape's names, the kernels that do it, the sources that measured it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from ...errors import unknown_name
from .attention import DecodeAttention, PrefillAttention
from .collectives import AllToAll, Collective
from .gemm import Gemm
from .moe import GroupedGemm, MoeLayer
from .moves import Copy, Decompress, StorageRead
from .rows import Norm, RouterTopK, Sampling
from .scan import LinearAttention, Scan

SILICON = "aiconfigurator-core"


@dataclass(frozen=True, slots=True)
class OperationEntry:
    """One line of the table. `kernels` are names of `kernels/registry.py`; `sources` cover it with measurements."""

    operation: type[Any]
    kernels: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    """The shape's fields that count work in one run (tokens, batch, context): time never falls when they grow."""

    @property
    def name(self) -> str:
        return str(self.operation.name)

    @property
    def shape(self) -> tuple[str, ...]:
        """Names of the operation's fields: the shape columns of its measurements."""
        return tuple(field.name for field in fields(self.operation))


_ENTRIES = (
    OperationEntry(Gemm, ("gemm",), (SILICON,), ("m",)),
    OperationEntry(GroupedGemm, ("routed_experts",), (SILICON,), ("tokens",)),
    OperationEntry(MoeLayer, ("fused_moe", "latent_moe"), (), ("tokens",)),
    OperationEntry(PrefillAttention, ("prefill_attention", "block_attention", "tree_attention"), (SILICON,), ("batch", "tokens")),
    OperationEntry(DecodeAttention, ("decode_attention",), (SILICON,), ("batch", "context")),
    OperationEntry(Scan, ("mamba2_scan",), (SILICON,), ("batch", "tokens")),
    OperationEntry(LinearAttention, (), (SILICON,), ("batch", "tokens")),
    OperationEntry(Norm, ("norm",), (), ("tokens",)),
    OperationEntry(RouterTopK, ("router_top_k",), (), ("tokens",)),
    OperationEntry(Sampling, ("sampling",), (), ("rows",)),
    OperationEntry(Copy, ("copy", "gather_experts"), (), ("size_bytes",)),
    OperationEntry(StorageRead, ("storage_read",), (), ("size_bytes",)),
    OperationEntry(Decompress, ("decompress",), (), ("weights",)),
    OperationEntry(Collective, (), (SILICON,), ("size_bytes",)),
    OperationEntry(AllToAll, (), (SILICON,), ("tokens",)),
)

OPERATIONS: Mapping[str, OperationEntry] = MappingProxyType({entry.name: entry for entry in _ENTRIES})


def operation_entry(name: str) -> OperationEntry:
    """The table's line for that operation. Raises `UsageError` naming the nearest known one."""
    found = OPERATIONS.get(name)
    if found is None:
        raise unknown_name("operation", name, OPERATIONS)
    return found
