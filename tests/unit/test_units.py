"""Sizes in, text out: what a person writes after --capacity, and what a table shows."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from codesign.errors import UsageError
from codesign.workbench import units
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("5%", "share", Fraction(1, 20)),
        ("0.1 %", "share", Fraction(1, 1000)),
        ("2GiB", "bytes", 2 * 2**30),
        ("2 gib", "bytes", 2 * 2**30),
        ("2GB", "bytes", 2 * 10**9),
        ("1.5MiB", "bytes", 3 * 2**19),
        ("64", "experts", 64),
        ("0", "experts", 0),
        ("auto", "auto", None),
    ],
)
def test_a_capacity_is_read_as_share_bytes_experts_or_auto(text: str, kind: str, value: object) -> None:
    capacity = units.parse_capacity(text)
    assert (capacity.kind, capacity.value) == (kind, value)
    assert capacity.label == text.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not understood"),
        ("-5%", "not understood"),
        ("5,5%", "not understood"),
        ("five", "not understood"),
        ("nan", "not understood"),
        ("1e3", "not understood"),
        ("2G", "unknown unit 'G'"),
        ("2GiB/s", "not understood"),
        ("0.05", "must be whole"),
    ],
)
def test_what_is_no_capacity_is_refused_with_its_text_and_what_would_be_right(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        units.parse_capacity(text)
    assert said in str(caught.value)
    assert repr(text) in str(caught.value)
    assert "5%" in str(caught.value)
    assert "2GiB" in str(caught.value)


def test_the_same_capacity_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="'5%' is given twice"):
        units.parse_capacities(["5%", "64", "5 %"])
    with pytest.raises(UsageError, match="no capacity"):
        units.parse_capacities([])


@pytest.mark.parametrize("text", ["64", "5%", "auto"])
def test_bytes_without_their_unit_are_refused(text: str) -> None:
    assert units.parse_bytes("64 MiB", "the budget") == 64 * 2**20
    with pytest.raises(UsageError, match=f"the budget must be bytes with their unit .* got '{text}'"):
        units.parse_bytes(text, "the budget")


@given(st.integers(0, 100), st.integers(1, 10**6))
def test_a_share_floors_exactly_where_binary_fractions_would_lose_one(percent: int, total: int) -> None:
    share = units.parse_capacity(f"{percent}%").value
    assert share is not None
    assert math.floor(share * total) == percent * total // 100


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (1.5e-9, "1.50 ns"),
        (12.34e-6, "12.3 µs"),
        (999.6e-6, "1.00 ms"),
        (0.1234, "123 ms"),
        (59.0, "59.0 s"),
        (1234.0, "1,234 s"),
        (None, "–"),
        (math.nan, "–"),
    ],
)
def test_seconds_read_with_the_fitting_prefix(seconds: float | None, text: str) -> None:
    assert units.format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("value", "decimal", "binary"),
    [
        (0, "0 B", "0 B"),
        (999, "999 B", "999 B"),
        (1000, "1.00 kB", "1000 B"),
        (2 * 2**30, "2.15 GB", "2.00 GiB"),
        (999_999, "1.00 MB", "977 KiB"),
        (12_582_912, "12.6 MB", "12.0 MiB"),
        (5 * 10**18, "5,000 PB", "4,441 PiB"),
        (None, "–", "–"),
    ],
)
def test_gb_is_decimal_and_gib_is_binary(value: float | None, decimal: str, binary: str) -> None:
    assert units.format_bytes(value) == decimal
    assert units.format_binary_bytes(value) == binary


def test_rates_shares_and_counts_have_units_and_unknown_is_a_dash() -> None:
    assert units.format_rate(3.35e12) == "3.35 TB/s"
    assert units.format_parameters(46_702_792_704) == "46.7 B"
    assert units.format_parameters(12) == "12"
    assert units.format_percent(0.12345) == "12.3 %"
    assert units.format_percent(0.12345, 2) == "12.35 %"
    assert units.format_count(1234567) == "1,234,567"
    for form in (units.format_rate, units.format_percent, units.format_count, units.format_seconds):
        assert form(None) == "–"
        assert form(math.nan) == "–"


@given(st.floats(1e-9, 1e9))
def test_what_is_printed_is_the_value_to_three_digits(seconds: float) -> None:
    number, unit = units.format_seconds(seconds).split()
    scale = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]
    assert math.isclose(float(number.replace(",", "")) * scale, seconds, rel_tol=5.1e-3)
