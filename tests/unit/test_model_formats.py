"""What a weight costs, scales included (case B14)."""

from __future__ import annotations

import pytest
from codesign.errors import UsageError
from codesign.sim.formats import WEIGHT_FORMATS, bytes_of, number_format


def test_nvfp4_is_nine_bytes_for_sixteen_weights_b14():
    assert bytes_of(4096 * 14336, "nvfp4") == 33_030_144
    assert bytes_of(4096 * 14336, "nvfp4") != 29_360_128
    assert bytes_of(16, "nvfp4") == 9


@pytest.mark.parametrize(
    ("name", "bits"),
    [("bf16", 16), ("fp8", 8), ("nvfp4", 4.5), ("mxfp4", 4.25), ("q4_0", 4.5), ("q4_k", 4.5), ("q6_k", 6.5625),
     ("q8_0", 8.5), ("mxfp8", 8.25), ("int4_g128", 4.15625)],
)  # fmt: skip
def test_a_format_costs_its_payload_and_its_scales(name, bits):
    assert float(WEIGHT_FORMATS[name]) == bits


def test_bytes_are_rounded_up_and_never_lost():
    assert bytes_of(1, "nvfp4") == 1
    assert bytes_of(3, "mxfp4") == 2
    assert bytes_of(0, "bf16") == 0


def test_an_unknown_format_names_the_nearest_one():
    with pytest.raises(UsageError, match=r"unknown number format 'nvfp5'; did you mean 'nvfp4'"):
        number_format("nvfp5")
