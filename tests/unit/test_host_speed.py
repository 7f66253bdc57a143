"""The script behind the CPU's sheet: right counts, right units, small sizes."""

from __future__ import annotations

import pytest
from codesign.errors import RunError, UsageError
from codesign.kernels.host_speed import (
    matrix_product_fp32,
    memory_copy,
    memory_read,
    seconds_of,
    storage_read,
)


def test_the_first_call_is_not_counted():
    calls = []
    samples = seconds_of(lambda: calls.append(1), 3)
    assert len(calls) == 4
    assert len(samples) == 3
    assert all(sample >= 0 for sample in samples)


def test_no_repeats_are_refused():
    with pytest.raises(UsageError, match="repeats must be at least 1, got 0"):
        seconds_of(lambda: None, 0)


@pytest.mark.parametrize("measure", [memory_read, memory_copy])
def test_a_memory_rate_lies_where_memory_can_be(measure):
    figure = measure(num_bytes=2**22, repeats=3)
    assert figure.unit == "bytes/s"
    assert 1e8 < figure.median <= figure.best < 1e13
    assert "n=3" in figure.line()


def test_a_product_rate_counts_two_operations_a_multiplication():
    figure = matrix_product_fp32(size=128, repeats=3)
    assert figure.unit == "FLOP/s"
    assert 1e7 < figure.median <= figure.best < 1e14


def test_storage_is_read_past_the_page_cache_or_not_at_all(tmp_path):
    figure = storage_read(tmp_path, num_bytes=2**21, repeats=2)
    assert figure is None or 1e5 < figure.median <= figure.best
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(RunError, match="cannot measure storage in"):
        storage_read(tmp_path / "none")
