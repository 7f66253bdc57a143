"""Published tables: read in our units, doubts named and counted, newest versions chosen."""

from __future__ import annotations

from importlib import util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from codesign.errors import UsageError
from codesign.kernels.silicon import published_roof, read_published
from codesign.kernels.silicon.package import version_key

installed = pytest.mark.skipif(
    util.find_spec("aiconfigurator_core") is None, reason="needs the extra silicon"
)


def gemm_table(
    root: Path, version: str, rows: list[tuple[int, int, int, float]], framework: str = "vllm"
) -> None:
    """A published table of (m, n, k, milliseconds)."""
    file = root / "h200_sxm" / "gemm" / framework / version / "gemm_perf.parquet"
    file.parent.mkdir(parents=True)
    table = pd.DataFrame(rows, columns=["m", "n", "k", "latency"])
    table.assign(gemm_dtype="bfloat16", kernel_source="one", op_name="gemm").to_parquet(file)


def read_gemm(root: Path) -> tuple[pd.DataFrame, dict[str, int]]:
    found = read_published("h200_sxm", ["gemm"], root=root)["gemm"]
    return found.measurements.rows, found.doubts


def test_milliseconds_become_seconds_and_the_source_is_kept(tmp_path: Path) -> None:
    gemm_table(tmp_path, "1.0", [(16, 4096, 4096, 0.0127)])
    rows, doubts = read_gemm(tmp_path)
    assert rows.seconds.tolist() == pytest.approx([12.7e-6])
    assert rows[["weights", "activations", "framework", "version", "kernel"]].iloc[0].tolist() == [
        "bf16",
        "bf16",
        "vllm",
        "1.0",
        "one",
    ]
    assert not doubts


def test_a_row_above_the_dense_peak_is_reported(tmp_path: Path) -> None:
    """Case B17: 8192 cubed in 0.556 ms is the speed of the figure with sparsity; the dense floor is 1.112 ms."""
    gemm_table(tmp_path, "1.0", [(8192, 8192, 8192, 0.556), (4096, 8192, 8192, 0.6)])
    rows, doubts = read_gemm(tmp_path)
    assert doubts["faster than the dense peak"] == 1
    assert (rows.doubt == "faster than the dense peak").tolist() == [True, False]


def test_rows_that_contradict_each_other_are_both_reported(tmp_path: Path) -> None:
    gemm_table(
        tmp_path,
        "1.0",
        [(1, 512, 512, 0.010), (1, 512, 512, 0.012), (2, 512, 512, 0.013), (2, 512, 512, 0.013)],
    )
    _, doubts = read_gemm(tmp_path)
    assert doubts["same run, contradictory times"] == 2


def test_a_row_slower_than_more_work_is_reported(tmp_path: Path) -> None:
    gemm_table(
        tmp_path,
        "1.0",
        [(1, 512, 512, 0.010), (2, 512, 512, 0.019), (4, 512, 512, 0.012), (8, 512, 512, 0.013)],
    )
    rows, doubts = read_gemm(tmp_path)
    assert doubts["1.5 times slower than more work"] == 1
    assert rows.m[rows.doubt != ""].tolist() == [2]


def test_rows_without_a_time_are_dropped_and_counted(tmp_path: Path) -> None:
    gemm_table(tmp_path, "1.0", [(1, 512, 512, 0.01), (2, 512, 512, 0.0), (4, 512, 512, float("nan"))])
    rows, doubts = read_gemm(tmp_path)
    assert len(rows) == 1
    assert doubts["no time"] == 2


def test_a_newest_version_that_only_adds_models_stands_beside_the_full_one(tmp_path: Path) -> None:
    full = [(m, 512, 512, 0.01) for m in range(1, 11)]
    gemm_table(tmp_path, "1.3.0rc9", full)
    gemm_table(tmp_path, "1.3.0rc20", full)
    gemm_table(tmp_path, "1.3.0rc23", [(1, 512, 512, 0.011), (1, 512, 1024, 0.01)])
    rows, doubts = read_gemm(tmp_path)
    assert set(rows.version) == {"1.3.0rc20", "1.3.0rc23"}
    assert doubts["older version of the same run"] == 1


def test_versions_sort_as_people_mean_them() -> None:
    order = ["0.5.6", "0.5.6.post2", "0.5.10", "1.3.0rc9", "1.3.0rc20", "1.3.0"]
    assert sorted(sorted(order), key=version_key) == order


def test_an_unknown_number_format_is_named(tmp_path: Path) -> None:
    gemm_table(tmp_path, "1.0", [(1, 512, 512, 0.01)])
    file = next(tmp_path.rglob("*.parquet"))
    pd.read_parquet(file).assign(gemm_dtype="int3").to_parquet(file)
    with pytest.raises(UsageError, match="int3"):
        read_gemm(tmp_path)


def test_an_unknown_system_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'h200_sxm'"):
        read_published("h200", root=tmp_path)


def test_the_roofs_of_gb200_are_those_of_its_superchip() -> None:
    assert published_roof("gb200").peaks["bf16"] == pytest.approx(2.5e15)
    assert published_roof("h200_sxm").peaks["bf16"] == 989.4e12


@pytest.mark.slow
@installed
def test_the_real_tables_of_an_h200_hold_latent_shapes_in_three_frameworks() -> None:
    found = read_published("h200_sxm", ["moe"])["moe"]
    rows = found.measurements.rows
    assert set(rows.framework) == {"vllm", "sglang", "trtllm"}
    latent = rows[
        (rows.hidden == 1024) & (rows.width == 2688) & (rows.top_k == 22) & (rows.num_experts == 512)
    ]
    assert len(latent) > 1000
    assert np.isfinite(found.trusted.seconds).all()
    assert found.measurements.licence == "Apache-2.0"
