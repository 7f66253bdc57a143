"""Measurements on disk: what is saved comes back, what is damaged is refused, what was there survives."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from codesign.errors import InputFileError, RunError, UsageError
from codesign.sim.measurement import Measurements, joined, load_measurements


def small(seconds: tuple[float, ...] = (1e-3, 2e-3), **columns: object) -> Measurements:
    rows = pd.DataFrame(
        {"m": [1, 2], "n": [3, 4], "k": [5, 6], "weights": ["bf16", "fp8"], "seconds": seconds, **columns}
    )
    return Measurements(
        "gemm",
        rows,
        "this test",
        environment={"gpu": {"name": 'a "quoted" \\ name', "clock_hz": 1.5e9}, "threads": 2},
    )


def test_what_is_saved_comes_back_equal(tmp_path: Path) -> None:
    before = small(samples=[[1e-3, 1.1e-3], [2e-3]], first_call_s=[0.5, 0.25])
    before.save(tmp_path / "gemm")
    after = load_measurements(tmp_path / "gemm")
    assert after.rows[["m", "n", "k", "weights", "seconds", "first_call_s"]].equals(
        before.rows[["m", "n", "k", "weights", "seconds", "first_call_s"]]
    )
    assert [list(one) for one in after.rows["samples"]] == [[1e-3, 1.1e-3], [2e-3]]
    assert after.environment == before.environment
    assert (after.source, after.licence) == (before.source, before.licence)


def test_saving_again_leaves_one_header_and_one_table(tmp_path: Path) -> None:
    small().save(tmp_path / "gemm")
    small((3e-3, 4e-3)).save(tmp_path / "gemm")
    assert len(list(tmp_path.iterdir())) == 2
    assert load_measurements(tmp_path / "gemm").seconds.tolist() == [3e-3, 4e-3]


@pytest.mark.parametrize("bad", [0.0, -1e-3, float("nan"), float("inf")])
def test_a_time_that_cannot_be_is_refused_with_row_and_value(bad: float) -> None:
    with pytest.raises(UsageError, match=r"row 1 has seconds"):
        small((1e-3, bad))


def test_a_missing_column_is_named() -> None:
    with pytest.raises(UsageError, match="lack the column 'k'"):
        Measurements("gemm", pd.DataFrame({"m": [1], "n": [1], "seconds": [1.0]}), "x")


def test_a_changed_table_is_refused(tmp_path: Path) -> None:
    small().save(tmp_path / "gemm")
    table = next(tmp_path.glob("*.parquet"))
    table.write_bytes(table.read_bytes() + b"x")
    with pytest.raises(InputFileError, match="SHA-256"):
        load_measurements(tmp_path / "gemm")


def test_another_schema_is_refused_with_what_is_read(tmp_path: Path) -> None:
    header = small().save(tmp_path / "gemm")
    header.write_text(header.read_text().replace("schema = 1", "schema = 99"))
    with pytest.raises(InputFileError, match=r"schema.*99.*reads 1"):
        load_measurements(tmp_path / "gemm")


def test_a_table_outside_the_headers_folder_is_never_opened(tmp_path: Path) -> None:
    header = small().save(tmp_path / "gemm")
    name = next(tmp_path.glob("*.parquet")).name
    header.write_text(header.read_text().replace(name, f"../{tmp_path.name}/{name}"))
    with pytest.raises(InputFileError, match="beside the header"):
        load_measurements(tmp_path / "gemm")


def test_a_failed_save_keeps_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small().save(tmp_path / "gemm")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(RunError, match="No space left"):
        small((3e-3, 4e-3)).save(tmp_path / "gemm")
    monkeypatch.undo()
    assert load_measurements(tmp_path / "gemm").seconds.tolist() == [1e-3, 2e-3]


def test_only_tables_of_one_operation_join() -> None:
    copies = Measurements("copy", pd.DataFrame({"size_bytes": [1], "seconds": [1.0]}), "x")
    assert len(joined([small(), small()])) == 4
    with pytest.raises(UsageError, match="one operation"):
        joined([small(), copies])
