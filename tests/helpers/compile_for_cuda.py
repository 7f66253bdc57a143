"""Compile every kernel for a CUDA architecture without having one: python compile_for_cuda.py 90

Wrappers run on arrays without storage; each launch is compiled with the tiles that the wrapper chose and not run. Prints a
JSON object: kernel → the most bytes of shared memory that one of its launches takes.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from typing import Any

import torch
import triton
from codesign.kernels.gpu import launch
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

MODULES = [
    "fused_moe",
    "latent_moe",
    "gather_experts",
    "decode_attention",
    "tree_attention",
    "block_attention",
    "mamba2_scan",
    "online_softmax",
]


class AbsentDevice:
    """A driver that only knows what to compile for."""

    def __init__(self, architecture: int) -> None:
        self._target = GPUTarget("cuda", architecture, 32)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def empty(*shape: int, format: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(*shape, dtype=format, device="meta")


def main() -> None:
    warnings.simplefilter("error", UserWarning)  # as pytest does on a device
    triton.runtime.driver.set_active(AbsentDevice(int(sys.argv[1])))
    assert not launch.INTERPRETED.value
    shared_bytes: dict[str, int] = {}
    run = JITFunction.run

    def compile_only(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        made = run(self, *arguments, grid=grid, warmup=True, **options)
        name = self.fn.__name__
        shared_bytes[name] = max(shared_bytes.get(name, 0), made.metadata.shared)
        return made

    JITFunction.run = compile_only
    modules = {name: importlib.import_module(f"codesign.kernels.gpu.{name}") for name in MODULES}
    for module in modules.values():
        for check in ("check_arrays", "check_placement"):
            setattr(module, check, lambda *_, **__: None)
    modules["online_softmax"].multiprocessors = lambda _: 132
    kernels = {name: getattr(module, name, None) for name, module in modules.items()}
    for tokens in (1, 4096):
        kernels["fused_moe"](
            empty(tokens, 2048),
            empty(128, 2048),
            empty(128, 1536, 2048),
            empty(128, 2048, 768),
            top_k=8,
            activation="silu",
        )
    kernels["latent_moe"](
        empty(256, 4096), empty(512, 4096), empty(1024, 4096), empty(512, 2688, 1024), empty(512, 1024, 2688), empty(4096, 1024),
        top_k=22, activation="relu2",
    )  # fmt: skip
    kernels["gather_experts"](empty(64, 10**6), empty(8, format=torch.int64))
    index = {"format": torch.int32}
    pages = empty(1000, 16, 8, 128)
    kernels["decode_attention"](
        empty(8, 32, 128), pages, pages, empty(8, 512, **index), empty(8, **index), window=1024
    )
    past, drafts = empty(2, 8192, 8, 128), empty(2, 61, 8, 128)
    kernels["tree_attention"](
        empty(2, 61, 32, 128), past, past, empty(2, **index), empty(61, 61, format=torch.bool), drafts, drafts
    )
    kernels["block_attention"](empty(1, 4096, 32, 128), past[:1, :4096], past[:1, :4096], block=32)
    rates, shared, wide = (
        empty(1, 8192, 64, format=torch.float32),
        empty(1, 8192, 8, 128),
        empty(64, format=torch.float32),
    )
    kernels["mamba2_scan"](
        empty(1, 8192, 64, 64), rates, wide, shared, shared, wide, chunk=256, bidirectional=True
    )
    # Triton turns arguments that are 1 into constants, which takes other paths through the compiler
    one, head = empty(1, **index), empty(1, 1, 1, 64)
    kernels["decode_attention"](empty(1, 1, 64), head, head, empty(1, 1, **index), one)
    kernels["tree_attention"](head, head, head, one, empty(1, 1, format=torch.bool), head, head)
    kernels["block_attention"](head, head, head, block=1)
    rate, single = empty(1, 1, 1, format=torch.float32), empty(1, format=torch.float32)
    kernels["mamba2_scan"](head, rate, single, head, head, single, chunk=1, bidirectional=False)
    kernels["fused_moe"](
        empty(1, 64), empty(1, 64), empty(1, 64, 64), empty(1, 64, 64), top_k=1, activation="relu2"
    )
    sys.stdout.write(json.dumps(shared_bytes))


if __name__ == "__main__":
    main()
