"""Operations: what a kernel does, with its shape, and exactly how many FLOPs and bytes that is."""

from ._work import Operation, Size, Work
from .attention import DecodeAttention, PrefillAttention
from .collectives import AllToAll, Collective
from .gemm import Gemm
from .moe import GroupedGemm, MoeLayer
from .moves import Copy, Decompress, StorageRead
from .registry import OPERATIONS, OperationEntry, operation_entry
from .rows import Norm, RouterTopK, Sampling
from .scan import LinearAttention, Scan

__all__ = [
    "OPERATIONS",
    "AllToAll",
    "Collective",
    "Copy",
    "DecodeAttention",
    "Decompress",
    "Gemm",
    "GroupedGemm",
    "LinearAttention",
    "MoeLayer",
    "Norm",
    "Operation",
    "OperationEntry",
    "PrefillAttention",
    "RouterTopK",
    "Sampling",
    "Scan",
    "Size",
    "StorageRead",
    "Work",
    "operation_entry",
]
