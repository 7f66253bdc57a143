"""From an operation with its shape to calls that can be timed: the right kernel, on arrays that no cache holds.

Several calls on other arrays take turns, so many that together they exceed the last-level cache. The same builders
serve the processor and a GPU: only the kernels' version and the arena's device differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from ..errors import UsageError
from ..sim.ops import Copy, Operation
from .arena import Arena
from .registry import kernel
from .timing import Call, CpuStopwatch, Stopwatch

if TYPE_CHECKING:
    import torch

    from .cpu.storage_read import DirectFile

PAGE_TOKENS = 16  # vLLM's default block of its paged cache
CHUNK = 64  # tokens of one chunk of a scan: the processor's best; Mamba-2's own GPU kernels use 64 to 256
_MOST_SETS = 64
_GATHERED = 8  # experts of a copy within a device: the top-k of most mixtures


@dataclass(frozen=True, slots=True)
class Bench:
    """What measured kernels work on: arrays, a file for storage reads, how large the cache to be avoided is, and a watch."""

    arena: Arena
    cache_bytes: int
    """0 where the watch empties the cache itself."""
    file: DirectFile | None = None
    watch: Stopwatch = field(default_factory=CpuStopwatch)
    host_watch: Stopwatch | None = None
    """For what the host takes part in while the device works; None: as all else."""
    interpreted: bool = False
    """The GPU's kernels on the processor, in Triton's interpreter: for tests."""

    @property
    def version(self) -> str:
        return "cpu" if self.arena.device == "cpu" and not self.interpreted else "gpu"

    def stopwatch(self, operation: Operation) -> Stopwatch:
        """The watch for an operation: copies of pageable memory are staged by the host, which events would not see."""
        staged = isinstance(operation, Copy) and "host" in (operation.source, operation.target) and not operation.pinned
        return self.host_watch if staged and self.host_watch is not None else self.watch


def subject(operation: Operation, bench: Bench) -> tuple[str, list[Call]]:
    """(kernel's name, calls that take turns). Raises `UsageError` for an operation without a kernel here."""
    build = BUILDERS.get(operation.name)
    if build is None:
        raise UsageError(
            f"no kernel for {operation.name!r} can be measured; known: {', '.join(sorted(BUILDERS))}"
        )
    one_bytes = max(float(cast(float, operation.bytes)), 1.0)
    sets = min(_MOST_SETS, max(1, math.ceil(2 * bench.cache_bytes / one_bytes)))
    name, make = build(operation, bench)
    return name, [make() for _ in range(sets)]


_Made = tuple[str, Callable[[], Call]]
# The builders take one shape each, the operation of `sim.ops` that BUILDERS names; its fields are whole numbers here.


def float_format(name: str) -> torch.dtype:
    """torch's name of a format. Raises `UsageError` for one that no kernel here is measured in."""
    import torch

    known = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp16": torch.float16}
    if name not in known:
        raise UsageError(f"kernels of this machine are measured in {', '.join(known)}, got {name!r}")
    return known[name]


def _gemm(op: Any, bench: Bench) -> _Made:
    run, dtype, take = kernel("gemm").load(bench.version), float_format(op.weights), bench.arena.take

    def make() -> Call:
        x, w = take(op.m, op.k, dtype=dtype), take(op.n, op.k, dtype=dtype)
        return lambda: run(x, w)

    return "gemm", make


def _moe(op: Any, bench: Bench) -> _Made:
    import torch

    if op.tp != 1 or op.ep != 1 or op.distribution != "uniform":
        raise UsageError(
            "experts are measured on one device and with evenly drawn tokens: tp 1, ep 1, uniform"
        )
    run, dtype, take = kernel("routed_experts").load(bench.version), float_format(op.weights), bench.arena.take
    activation = "silu" if op.gated else "relu2"
    rows = op.width * (2 if op.gated else 1)
    generator = torch.Generator().manual_seed(op.tokens)

    def make() -> Call:
        x = take(op.tokens, op.hidden, dtype=dtype)
        scores = torch.rand(
            op.tokens, op.num_experts, generator=generator
        )  # each token draws its K of N anew
        experts = scores.topk(op.top_k).indices.to(bench.arena.device)
        weights = torch.full(experts.shape, 1 / op.top_k, device=bench.arena.device)
        w_in = take(op.num_experts, rows, op.hidden, dtype=dtype)
        w_out = take(op.num_experts, op.hidden, op.width, dtype=dtype)
        return lambda: run(x, weights, experts, w_in, w_out, activation=activation)

    return "routed_experts", make


def _moe_layer(op: Any, bench: Bench) -> _Made:
    if op.shared_width or op.tp != 1 or op.ep != 1:
        raise UsageError("a mixture is measured alone on one device: shared_width 0, tp 1, ep 1")
    name = "fused_moe" if op.latent is None else "latent_moe"
    run, dtype, take = kernel(name).load(bench.version), float_format(op.weights), bench.arena.take
    wide = op.hidden if op.latent is None else op.latent
    settings: dict[str, Any] = {"top_k": op.top_k, "activation": "silu" if op.gated else "relu2"}
    rows = op.width * (2 if op.gated else 1)

    def make() -> Call:
        x, router = take(op.tokens, op.hidden, dtype=dtype), take(op.num_experts, op.hidden, dtype=dtype)
        w_in, w_out = (
            take(op.num_experts, rows, wide, dtype=dtype),
            take(op.num_experts, wide, op.width, dtype=dtype),
        )
        if op.latent is None:
            return lambda: run(x, router, w_in, w_out, **settings)
        down, up = take(wide, op.hidden, dtype=dtype), take(op.hidden, wide, dtype=dtype)
        return lambda: run(x, router, down, w_in, w_out, up, **settings)

    return name, make


def _prefill(op: Any, bench: Bench) -> _Made:
    if op.prefix or op.shared_kv or op.value_dim not in (None, op.head_dim):
        raise UsageError("prompts are measured without a prefix and with values as wide as keys")
    run, dtype, take = (
        kernel("prefill_attention").load(bench.version),
        float_format(op.activations),
        bench.arena.take,
    )

    def make() -> Call:
        q = take(op.batch, op.tokens, op.heads, op.head_dim, dtype=dtype)
        k, v = (take(op.batch, op.tokens, op.kv_heads, op.head_dim, dtype=dtype) for _ in range(2))
        return lambda: run(q, k, v, window=op.window or None, causal=op.causal)

    return "prefill_attention", make


def _decode(op: Any, bench: Bench) -> _Made:
    import torch

    if op.shared_kv or op.value_dim not in (None, op.head_dim):
        raise UsageError("decoding is measured with keys and values of one width")
    run, dtype, take = kernel("decode_attention").load(bench.version), float_format(op.kv_cache), bench.arena.take
    pages_each = -(-op.context // PAGE_TOKENS)
    pages = op.batch * pages_each
    generator = torch.Generator().manual_seed(pages)

    def make() -> Call:
        q = take(op.batch, op.heads, op.head_dim, dtype=dtype)
        k, v = (take(pages, PAGE_TOKENS, op.kv_heads, op.head_dim, dtype=dtype) for _ in range(2))
        order = torch.randperm(pages, generator=generator).view(op.batch, pages_each).to(bench.arena.device)
        lengths = torch.full((op.batch,), op.context, device=bench.arena.device)
        return lambda: run(q, k, v, order, lengths, window=op.window or None)

    return "decode_attention", make


def _scan(op: Any, bench: Bench) -> _Made:
    import torch

    run, dtype, take = kernel("mamba2_scan").load(bench.version), float_format(op.activations), bench.arena.take
    decay = -torch.rand(op.heads, generator=torch.Generator().manual_seed(0)).to(bench.arena.device)

    def make() -> Call:
        x = take(op.batch, op.tokens, op.heads, op.head_dim, dtype=dtype)
        steps = take(op.batch, op.tokens, op.heads, dtype=dtype).abs()
        inputs, outputs = (take(op.batch, op.tokens, op.groups, op.state, dtype=dtype) for _ in range(2))
        skip = take(op.heads, dtype=torch.float32)
        return lambda: run(
            x, steps, decay, inputs, outputs, skip, chunk=CHUNK, bidirectional=op.bidirectional
        )

    return "mamba2_scan", make


def _norm(op: Any, bench: Bench) -> _Made:
    run, dtype, take = kernel("norm").load(bench.version), float_format(op.activations), bench.arena.take

    def make() -> Call:
        x, weight = take(op.tokens, op.hidden, dtype=dtype), take(op.hidden, dtype=dtype)
        residual = x.clone() if op.residual else None
        return lambda: run(x, weight, residual)

    return "norm", make


def _router(op: Any, bench: Bench) -> _Made:
    import torch

    run, take = kernel("router_top_k").load(bench.version), bench.arena.take

    def make() -> Call:
        logits = take(op.tokens, op.num_experts, dtype=torch.float32)
        return lambda: run(logits, top_k=op.top_k)

    return "router_top_k", make


def _sampling(op: Any, bench: Bench) -> _Made:
    import torch

    run, dtype, take = kernel("sampling").load(bench.version), float_format(op.logits), bench.arena.take
    uniforms = torch.rand(op.rows, generator=torch.Generator().manual_seed(0)).to(bench.arena.device)

    def make() -> Call:
        logits = take(op.rows, op.vocab, dtype=dtype)
        return lambda: run(logits, uniforms)

    return "sampling", make


def _copy(op: Any, bench: Bench) -> _Made:
    import torch

    if bench.version == "gpu":
        return _device_copy(op, bench)
    if (op.source, op.target) != ("host", "host"):
        raise UsageError(f"copies are measured from host to host memory, got {op.source} to {op.target}")
    run, take = kernel("copy").load(bench.version), bench.arena.take

    def make() -> Call:
        source = take(op.size_bytes, dtype=torch.uint8)
        target = torch.zeros_like(source)
        return lambda: run(source, target)

    return "copy", make


def _device_copy(op: Any, bench: Bench) -> _Made:
    """Over the link, or within the device: there as a gather of experts, which is what moves them."""
    import torch

    take, device = bench.arena.take, bench.arena.device
    ways = (op.source, op.target)
    if ways == ("device", "device"):
        gather = kernel("gather_experts").load("gpu")
        if op.size_bytes % _GATHERED:
            raise UsageError(
                f"copies within a device gather {_GATHERED} rows: their bytes must be a multiple, got {op.size_bytes}"
            )

        def make_gather() -> Call:
            cache = take(2 * _GATHERED, op.size_bytes // _GATHERED, dtype=torch.uint8)
            slots = torch.arange(0, 2 * _GATHERED, 2, device=device)
            return lambda: gather(cache, slots)

        return "gather_experts", make_gather
    if ways not in (("host", "device"), ("device", "host")):
        raise UsageError(f"copies of a GPU are measured within it, to it and from it, got {op.source} to {op.target}")
    run = kernel("copy").load("gpu")

    def make() -> Call:
        near = take(op.size_bytes, dtype=torch.uint8)
        pin = op.pinned and not bench.interpreted
        far = torch.zeros(op.size_bytes, dtype=torch.uint8, pin_memory=pin)
        if op.source == "host":  # the arena is not to be written to
            target = torch.empty_like(near)
            return lambda: run(far, target, queued=op.pinned)
        return lambda: run(near, far, queued=op.pinned)

    return "copy", make


def _storage_read(op: Any, bench: Bench) -> _Made:
    file = bench.file
    if file is None or op.cached:
        raise UsageError(
            "storage is measured past the page cache, with a file to read: this machine offers none"
        )
    run, places = kernel("storage_read").load(bench.version), max(1, file.size_bytes // op.size_bytes)
    turn = iter(range(10**9))

    def make() -> Call:
        offset = next(turn) % places * op.size_bytes
        return lambda: run(file, offset, op.size_bytes, block_bytes=op.block_bytes)

    return "storage_read", make


def _decompress(op: Any, bench: Bench) -> _Made:
    import torch

    from .cpu.decompress import compress

    run, take = kernel("decompress").load(bench.version), bench.arena.take

    def make() -> Call:
        packed = compress(take(op.weights, dtype=torch.bfloat16))
        return lambda: run(packed)

    return "decompress", make


BUILDERS: Mapping[str, Callable[[Any, Bench], _Made]] = MappingProxyType({
    "gemm": _gemm, "moe": _moe, "moe_layer": _moe_layer, "attention_prefill": _prefill, "attention_decode": _decode,
    "scan": _scan, "norm": _norm, "router_top_k": _router, "sampling": _sampling, "copy": _copy, "storage_read": _storage_read,
    "decompress": _decompress,
})  # fmt: skip
"""Operation → what makes its calls."""
