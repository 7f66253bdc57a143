"""The one list of kernels, and the calls that measuring makes of them."""

from __future__ import annotations

import inspect
import sys
from types import SimpleNamespace

import pytest
from codesign.errors import UsageError

torch = pytest.importorskip("torch")

from codesign.kernels.arena import Arena  # noqa: E402
from codesign.kernels.cpu.storage_read import MIB, direct_file  # noqa: E402
from codesign.kernels.registry import KERNELS, VERSIONS, kernel  # noqa: E402
from codesign.kernels.roof import Roof, measure_roof  # noqa: E402
from codesign.kernels.subjects import BUILDERS, Bench, subject  # noqa: E402
from codesign.kernels.timing import CudaStopwatch  # noqa: E402
from codesign.sim.ops import (  # noqa: E402
    OPERATIONS,
    Copy,
    DecodeAttention,
    Decompress,
    Gemm,
    GroupedGemm,
    LinearAttention,
    MoeLayer,
    Norm,
    PrefillAttention,
    RouterTopK,
    Sampling,
    Scan,
    StorageRead,
)

SMALL = [
    Gemm(3, 8, 16), GroupedGemm(5, 16, 8, 6, 2), MoeLayer(5, 16, 8, 6, 2), MoeLayer(5, 16, 8, 6, 2, latent=4, gated=False),
    PrefillAttention(2, 9, 4, 2, 8), PrefillAttention(1, 9, 4, 2, 8, window=3), DecodeAttention(2, 33, 4, 2, 8),
    Scan(1, 9, 4, 8, 2, 8), Scan(1, 9, 4, 8, 2, 8, bidirectional=True), Norm(3, 16), Norm(3, 16, residual=True),
    RouterTopK(3, 8, 2), Sampling(2, 50), Copy(4096, "host", "host", pinned=False), Decompress(1000, 0.36, "zstd"),
]  # fmt: skip


@pytest.fixture(scope="module")
def arena():
    return Arena(2**22)


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_counts_its_work_by_an_operation_and_runs_on_the_processor(name):
    entry = kernel(name)
    assert entry.operation in OPERATIONS
    assert set(entry.versions) <= set(VERSIONS)
    assert callable(entry.load("cpu"))


@pytest.mark.parametrize("name", [name for name, entry in KERNELS.items() if "reference" in entry.versions])
def test_the_versions_of_a_kernel_share_one_signature(name):
    names = [
        list(inspect.signature(kernel(name).load(version)).parameters) for version in ("reference", "cpu")
    ]
    assert names[0] == names[1]


def test_an_operation_of_the_table_names_only_kernels_that_exist():
    named = {(name, entry.name) for entry in OPERATIONS.values() for name in entry.kernels}
    assert {name for name, _ in named} <= set(KERNELS)
    assert all(KERNELS[name].operation == operation for name, operation in named)


def test_unknown_kernels_and_versions_are_refused():
    with pytest.raises(UsageError, match="did you mean 'fused_moe'"):
        kernel("fused_mo")
    with pytest.raises(UsageError, match="unknown version of a kernel 'tpu'"):
        kernel("gemm").load("tpu")
    with pytest.raises(UsageError, match="'norm' has no gpu version, only cpu"):
        kernel("norm").load("gpu")


@pytest.mark.parametrize("operation", SMALL, ids=lambda op: op.name)
def test_the_call_made_for_an_operation_runs_and_gives_finite_numbers(operation, arena):
    name, calls = subject(operation, Bench(arena, cache_bytes=2**12))
    assert KERNELS[name].operation == operation.name
    result = calls[0]()
    for array in result if isinstance(result, tuple) else (result,):
        assert torch.isfinite(array.double()).all()


def test_every_builder_is_tried_above():
    assert {op.name for op in SMALL} | {"storage_read"} == set(BUILDERS)


def test_calls_together_exceed_the_cache_that_is_to_be_avoided(arena):
    operation = Gemm(1, 64, 64)
    _, calls = subject(operation, Bench(arena, cache_bytes=10 * operation.bytes))
    assert len(calls) == 20
    assert len(subject(Gemm(1, 512, 512), Bench(arena, cache_bytes=1))[1]) == 1


def test_storage_is_read_at_other_places_in_turn(arena, tmp_path):
    path = tmp_path / "blob"
    path.write_bytes(bytes([1]) * MIB + bytes([2]) * MIB)
    with direct_file(path, MIB) as file:
        _, calls = subject(StorageRead(MIB, MIB), Bench(arena, 2 * MIB, file))
        assert [call()[0] for call in calls[:4]] == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (LinearAttention(1, 4, 2, 2, 8, 8), "no kernel for 'linear_attention'"),
        (Gemm(1, 2, 3, weights="nvfp4"), "got 'nvfp4'"),
        (MoeLayer(1, 8, 4, 4, 2, shared_width=4), "shared_width 0"),
        (GroupedGemm(1, 8, 4, 4, 2, tp=2), "tp 1"),
        (Copy(4096), "from host to host memory, got host to device"),
        (StorageRead(4096, 4096), "this machine offers none"),
        (DecodeAttention.mla(1, 16, 4, 32, 8), "keys and values of one width"),
        (PrefillAttention(1, 4, 2, 2, 8, prefix=3), "without a prefix"),
    ],
)
def test_what_cannot_be_measured_here_is_refused_with_the_reason(operation, message, arena):
    with pytest.raises(UsageError, match=message):
        subject(operation, Bench(arena, 1))


def test_an_arena_gives_normal_numbers_in_both_formats_and_never_the_same_bytes_twice_in_a_row(arena):
    for dtype in (torch.bfloat16, torch.float32):
        first, second = arena.take(100, 100, dtype=dtype), arena.take(100, 100, dtype=dtype)
        assert first.data_ptr() != second.data_ptr()
        assert 0.9 < float(first.float().std()) < 1.1
        assert abs(float(first.float().mean())) < 0.1
    with pytest.raises(UsageError, match="does not fit into an arena"):
        arena.take(2**22, dtype=torch.float32)
    with pytest.raises(UsageError, match="an arena needs at least 4096 bytes, got 7"):
        Arena(7)


def test_a_floor_is_the_longer_of_bytes_and_operations():
    roof = Roof(1e9, {"bf16": 1e12})
    assert roof.floor_s(Gemm(1, 1000, 1000)) == pytest.approx(float(Gemm(1, 1000, 1000).bytes) / 1e9)
    assert roof.floor_s(Gemm(10**5, 10_000, 10_000)) == pytest.approx(20.0)


def test_of_two_measured_roofs_the_higher_counts_number_by_number():
    both = Roof(1.0, {"bf16": 5.0, "fp32": 2.0}).best_with(Roof(3.0, {"bf16": 4.0, "fp32": 6.0}))
    assert both == Roof(3.0, {"bf16": 5.0, "fp32": 6.0})


@pytest.mark.slow
def test_a_measured_roof_lies_where_processors_can_be():
    roof = measure_roof(Bench(Arena(2**26), 2**20), budget_s=0.1)
    assert 1e8 < roof.bytes_per_s < 1e13
    assert all(1e8 < flops < 1e15 for flops in roof.flops_per_s.values())


def test_a_cuda_lap_queues_everything_flushes_before_each_call_and_waits_once(monkeypatch):
    log = []

    class Event:
        def __init__(self, enable_timing):
            self.at = None

        def record(self, stream):
            log.append("record")

        def elapsed_time(self, other):
            return 0.25  # milliseconds

    stream = SimpleNamespace(synchronize=lambda: log.append("wait"))
    fake = SimpleNamespace(
        device=lambda name: name, uint8=None,
        empty=lambda *_, **__: SimpleNamespace(zero_=lambda: log.append("flush")),
        cuda=SimpleNamespace(Event=Event, current_stream=lambda device: stream),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", fake)
    watch = CudaStopwatch()
    assert watch.lap([lambda: log.append("call")], 0, 3) == pytest.approx(3 * 0.25e-3)
    assert log == ["flush", "record", "call", "record"] * 3 + ["wait"]
    log.clear()
    assert CudaStopwatch(flush=False).lap([lambda: log.append("call")], 0, 3) == pytest.approx(0.25e-3)
    assert log == ["flush", "record", "call", "call", "call", "record", "wait"]
