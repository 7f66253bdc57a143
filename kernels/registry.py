"""Every kernel by name: where its three versions are and which operation counts its work. The only list.

A version is named by its module and loaded when asked for: Triton and torch take seconds to import, and the GPU versions
exist on few machines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any

from ..errors import UsageError, unknown_name

VERSIONS = ("reference", "cpu", "gpu")


@dataclass(frozen=True, slots=True)
class KernelEntry:
    """One kernel. `operation` is a name of `sim.ops`, whose class counts its FLOPs and bytes."""

    name: str
    operation: str
    versions: tuple[str, ...]
    """Those that exist, of `VERSIONS`."""

    def load(self, version: str) -> Callable[..., Any]:
        """The function. Raises `UsageError` for a version that this kernel lacks or that needs a missing library."""
        if version not in VERSIONS:
            raise unknown_name("version of a kernel", version, VERSIONS)
        if version not in self.versions:
            raise UsageError(
                f"kernel {self.name!r} has no {version} version, only {', '.join(self.versions)}"
            )
        module = import_module(f".{version}.{self.name}", __package__)
        function: Callable[..., Any] = getattr(module, self.name)
        return function


_ALL, _CPU, _BOTH = VERSIONS, ("cpu",), ("cpu", "gpu")
_ENTRIES = (
    KernelEntry("gemm", "gemm", _BOTH),
    KernelEntry("routed_experts", "moe", _BOTH),
    KernelEntry("fused_moe", "moe_layer", _ALL),
    KernelEntry("latent_moe", "moe_layer", _ALL),
    KernelEntry("prefill_attention", "attention_prefill", _CPU),
    KernelEntry("block_attention", "attention_prefill", _ALL),
    KernelEntry("decode_attention", "attention_decode", _ALL),
    KernelEntry("tree_attention", "attention_prefill", _ALL),
    KernelEntry("mamba2_scan", "scan", _ALL),
    KernelEntry("norm", "norm", _CPU),
    KernelEntry("router_top_k", "router_top_k", _CPU),
    KernelEntry("sampling", "sampling", _CPU),
    KernelEntry("copy", "copy", _BOTH),
    KernelEntry("gather_experts", "copy", _ALL),
    KernelEntry("storage_read", "storage_read", _CPU),
    KernelEntry("decompress", "decompress", _CPU),
)

KERNELS: Mapping[str, KernelEntry] = MappingProxyType({entry.name: entry for entry in _ENTRIES})


def kernel(name: str) -> KernelEntry:
    """The kernel of that name. Raises `UsageError` naming the nearest known one."""
    found = KERNELS.get(name)
    if found is None:
        raise unknown_name("kernel", name, KERNELS)
    return found
