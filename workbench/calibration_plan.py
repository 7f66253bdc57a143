"""What a calibration measures: a grid of shapes per operation, some of them held out whole.

Shapes are those of models in the catalog or between them, bounded by the memory and the time that one call may take. A shape
is whole: a product's (n, k), a mixture's (hidden, width, experts, top-k), an attention's heads and window, formats
included, with all their rows. One in five is measured like the others and never fitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from typing import Any

from ..errors import UsageError, unknown_name
from ..sim.ops import (
    Copy,
    DecodeAttention,
    Decompress,
    Gemm,
    GroupedGemm,
    MoeLayer,
    Norm,
    Operation,
    PrefillAttention,
    RouterTopK,
    Sampling,
    Scan,
    StorageRead,
    operation_entry,
)

SUITES = ("quick", "full")
_FEWEST_WHOLE_SHAPES = 8
"""Below this many whole shapes an operation's rows are held out one by one: there would be nothing left to fit."""
_KIB, _MIB = 2**10, 2**20


@dataclass(frozen=True, slots=True)
class Case:
    """One row to be measured."""

    operation: Operation
    shape: Mapping[str, Any]
    """The operation's fields, without those that are None."""
    held_out: bool

    @property
    def name(self) -> str:
        return self.operation.name

    @property
    def key(self) -> str:
        """Names the row in a journal: the same in every process."""
        return f"{self.name} " + " ".join(f"{field}={value}" for field, value in self.shape.items())


@dataclass(frozen=True, slots=True)
class Limits:
    """Rates of this machine, to leave out what would take too long or too much memory."""

    flops_per_s: float
    bytes_per_s: float
    longest_s: float
    arena_bytes: int

    def allows(self, operation: Operation) -> bool:
        floor_s = max(float(operation.flops) / self.flops_per_s, float(operation.bytes) / self.bytes_per_s)
        return floor_s <= self.longest_s and _held_bytes(operation) <= self.arena_bytes


def _held_bytes(operation: Operation) -> float:
    """Bytes that its arrays take at once: all experts of a mixture are there, touched or not."""
    if isinstance(operation, GroupedGemm | MoeLayer):
        routed = operation.routed if isinstance(operation, MoeLayer) else operation
        one = routed.matrices * routed.hidden * routed.width * (4 if routed.weights == "fp32" else 2)
        return float(one * routed.num_experts)
    return float(operation.bytes)


def plan(
    suite: str,
    limits: Limits,
    *,
    operations: Sequence[str] = (),
    with_storage: bool = True,
    wanted: Sequence[Any] = (),
    grids: Mapping[str, Any] | None = None,
) -> list[Case]:
    """The cases of a suite in a fixed order; with `wanted`, shapes that are asked for and so never held out.

    `grids`: operation → its grid on the device that is measured, the processor's (`GRIDS`) if None.

    Raises `UsageError` for unknown names, or where nothing can be measured within the limits.
    """
    if suite not in SUITES:
        raise unknown_name("suite", suite, SUITES)
    offered = GRIDS if grids is None else grids
    grids = {name: grid for name, grid in offered.items() if with_storage or name != "storage_read"}
    for name in operations:
        if name not in grids:
            raise unknown_name("operation to calibrate", name, grids)
    cases: list[Case] = []
    for name in operations or grids:
        asked = [operation for operation in wanted if operation.name == name and limits.allows(operation)]
        allowed = [operation for operation in grids[name](suite == "full") if limits.allows(operation)]
        cases += _cases(name, asked, allowed)
    if not cases:
        raise UsageError("nothing to calibrate: no shape fits into the memory and the time of one call")
    return cases


def _cases(name: str, asked: Sequence[Any], allowed: Sequence[Any]) -> list[Case]:
    entry = operation_entry(name)
    distinct = list(dict.fromkeys([*asked, *allowed]))
    shapes = [{n: value for n in entry.shape if (value := getattr(op, n)) is not None} for op in distinct]
    wholes = [tuple((n, value) for n, value in shape.items() if n not in entry.steps) for shape in shapes]
    if len(set(wholes)) < _FEWEST_WHOLE_SHAPES:
        wholes = [tuple(shape.items()) for shape in shapes]
    fitted = {wholes[distinct.index(operation)] for operation in asked}
    free = sorted(set(wholes) - fitted, key=_hash)
    out = {whole for whole in free if is_held_out(whole)} or set(free[:1])  # few shapes may miss the rule
    return [Case(op, shape, whole in out) for op, shape, whole in zip(distinct, shapes, wholes, strict=True)]


def is_held_out(whole_shape: object) -> bool:
    """One shape in five, by its own hash: the same ones in every run, whatever else is measured."""
    return _hash(whole_shape) % 5 == 0


def _hash(whole_shape: object) -> int:
    return int(sha256(repr(whole_shape).encode()).hexdigest(), 16)


def gemm_shapes(full: bool) -> list[tuple[int, int]]:
    """(n, k): OLMoE, Qwen3-30B, gpt-oss, Nemotron and Llama projections, and widths between them."""
    few = [(2048, 2048), (4096, 2048), (2048, 4096), (512, 2048), (1024, 1024), (2880, 2880), (768, 2048), (2048, 768),
           (1536, 1536), (4096, 1024), (1024, 4096), (3072, 1024), (1024, 2560), (2560, 1024), (5120, 2880),
           (640, 1280)]  # fmt: skip
    more = [(4096, 4096), (14336, 4096), (4096, 14336), (6144, 2048), (2048, 6144), (8192, 2048), (1408, 2048), (2048, 1408),
            (256, 4096), (2688, 1024), (1024, 2688), (3584, 1792), (1792, 3584), (512, 512)]  # fmt: skip
    return few + more if full else few


def _gemms(full: bool) -> Iterator[Gemm]:
    rows = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512) if full else (1, 4, 16, 64, 256)
    for form in ("bf16", "fp32") if full else ("bf16",):
        for (n, k), m in product(gemm_shapes(full), rows):
            yield Gemm(m, n, k, weights=form, activations=form, out=form)


def mixture_shapes(full: bool) -> list[tuple[int, int, int, int, bool]]:
    """(width the experts read, their own width, experts, top-k, gated)"""
    few = [(2048, 1024, 64, 8, True), (2048, 768, 128, 8, True), (1024, 512, 32, 4, True), (512, 256, 64, 8, True),
           (1024, 768, 64, 6, True), (1024, 2688, 64, 4, False), (512, 512, 128, 8, False), (768, 384, 48, 4, True),
           (1536, 512, 64, 6, True), (768, 1536, 32, 2, True)]  # fmt: skip
    more = [(2048, 1408, 64, 6, True), (2880, 2880, 32, 4, True), (1024, 1024, 16, 2, True), (1024, 2688, 128, 22, False),
            (640, 1280, 32, 4, False), (512, 1024, 64, 2, True), (1280, 640, 96, 8, True), (2048, 512, 64, 4, False)]  # fmt: skip
    return few + more if full else few


def _tokens(full: bool) -> tuple[int, ...]:
    return (1, 2, 4, 8, 16, 32, 64, 128, 256, 512) if full else (1, 2, 8, 32, 128)


def _moes(full: bool) -> Iterator[GroupedGemm]:
    for form in ("bf16", "fp32") if full else ("bf16",):
        for (hidden, width, experts, top_k, gated), tokens in product(mixture_shapes(full), _tokens(full)):
            yield GroupedGemm(
                tokens, hidden, width, experts, top_k, gated=gated, weights=form, activations=form
            )


def _moe_layers(full: bool) -> Iterator[MoeLayer]:
    return moe_layers(mixture_shapes(full), _tokens(full) if full else (1, 8, 64))


def moe_layers(
    shapes: Sequence[tuple[int, int, int, int, bool]], token_counts: Sequence[int]
) -> Iterator[MoeLayer]:
    """Whole layers of those mixtures, standard or latent."""
    for (wide, width, experts, top_k, gated), tokens in product(shapes, token_counts):
        if gated:
            yield MoeLayer(tokens, wide, width, experts, top_k)
        else:  # experts without a gate are those of latent mixtures: a latent of a quarter of the hidden width
            yield MoeLayer(tokens, 4 * wide, width, experts, top_k, latent=wide, gated=False)


def attention_shapes(full: bool) -> list[tuple[int, int, int, int]]:
    """(heads, KV heads, head size, window or 0)"""
    few = [(16, 16, 128, 0), (32, 4, 128, 0), (32, 8, 64, 0), (64, 8, 64, 128), (16, 2, 128, 0), (8, 8, 64, 0),
           (24, 8, 128, 0), (16, 4, 64, 256), (12, 12, 64, 0), (32, 2, 128, 0)]  # fmt: skip
    more = [
        (32, 32, 64, 0),
        (16, 1, 256, 0),
        (20, 4, 96, 0),
        (32, 8, 128, 512),
        (40, 8, 128, 0),
        (8, 2, 256, 0),
        (28, 4, 128, 0),
    ]
    return few + more if full else few


def _prefills(full: bool) -> Iterator[PrefillAttention]:
    lengths = (64, 128, 256, 512, 1024, 2048) if full else (64, 256, 1024)
    for (heads, kv_heads, size, window), tokens in product(attention_shapes(full), lengths):
        yield PrefillAttention(1, tokens, heads, kv_heads, size, window=window or None)


def _decodes(full: bool) -> Iterator[DecodeAttention]:
    contexts = (128, 512, 1024, 2048, 4096, 8192) if full else (128, 1024, 4096)
    for (heads, kv_heads, size, window), batch, context in product(
        attention_shapes(full), (1, 4, 16) if full else (1, 8), contexts
    ):
        yield DecodeAttention(batch, context, heads, kv_heads, size, window=window or None)


def scan_shapes(full: bool) -> list[tuple[int, int, int, int]]:
    """(heads, head size, groups, state)"""
    few = [(64, 64, 8, 128), (32, 64, 1, 128), (24, 64, 1, 128), (16, 64, 2, 64), (48, 32, 4, 64), (32, 32, 1, 16),
           (16, 64, 1, 128), (32, 64, 2, 64), (48, 64, 1, 64), (64, 32, 2, 64), (32, 64, 4, 128), (16, 128, 1, 64),
           (24, 32, 2, 128), (40, 64, 1, 64)]  # fmt: skip
    more = [
        (128, 64, 8, 128),
        (80, 64, 1, 128),
        (64, 64, 1, 128),
        (96, 64, 8, 128),
        (16, 32, 1, 32),
        (64, 64, 4, 64),
    ]
    return few + more if full else few


def _scans(full: bool) -> Iterator[Scan]:
    lengths = (64, 128, 256, 512, 1024) if full else (64, 256)
    for (heads, size, groups, state), both, tokens in product(scan_shapes(full), (False, True), lengths):
        yield Scan(1, tokens, heads, size, groups, state, bidirectional=both)


def _norms(full: bool) -> Iterator[Norm]:
    widths = (512, 1024, 1536, 2048, 2880, 4096, 5120, 6144, 7168, 8192)
    for hidden, tokens in product(widths, (1, 4, 16, 64, 256, 1024) if full else (1, 16, 256)):
        yield Norm(tokens, hidden)


def _routers(full: bool) -> Iterator[RouterTopK]:
    shapes = [*product((16, 32, 64, 128, 256, 512), (2, 4, 8)), (60, 4), (96, 8), (384, 8), (64, 6), (128, 6), (256, 16),
              (512, 16), (512, 22), (128, 16)]  # fmt: skip
    for (experts, top_k), tokens in product(shapes, (1, 4, 16, 64, 256, 1024) if full else (1, 16, 256)):
        yield RouterTopK(tokens, experts, top_k)


def _samplings(full: bool) -> Iterator[Sampling]:
    for vocab, rows in product(
        (32_000, 50_304, 100_352, 128_256, 151_936, 201_088), (1, 2, 4, 8, 16, 32) if full else (1, 4, 16)
    ):
        yield Sampling(rows, vocab)


def _copies(full: bool) -> Iterator[Copy]:
    sizes = [4 * _KIB << step for step in range(16)]
    between = [size * 3 // 2 for size in sizes]
    yield from (Copy(size, "host", "host", pinned=False) for size in sorted(sizes + between))


def _reads(full: bool) -> Iterator[StorageRead]:
    sizes = [_MIB << step for step in range(6)]
    between = [3 * _MIB, 5 * _MIB, 6 * _MIB, 10 * _MIB, 12 * _MIB, 14 * _MIB, 20 * _MIB, 24 * _MIB, 28 * _MIB]
    yield from (StorageRead(size, _MIB) for size in sorted(sizes + between))


def _decompressions(full: bool) -> Iterator[Decompress]:
    """Weights as a normal distribution leaves them: 0.36 of the exponents' bytes with zstd-1."""
    sizes = [2**step for step in range(15, 24 if full else 23)]
    between = [size * 3 // 2 for size in sizes]
    yield from (Decompress(size, 0.36, codec="zstd") for size in sorted(sizes + between))


GRIDS: Mapping[str, Any] = {
    "gemm": _gemms, "moe": _moes, "moe_layer": _moe_layers, "attention_prefill": _prefills, "attention_decode": _decodes,
    "scan": _scans, "norm": _norms, "router_top_k": _routers, "sampling": _samplings, "copy": _copies,
    "storage_read": _reads, "decompress": _decompressions,
}  # fmt: skip
"""Operation → its grid; `True` for the full suite."""
