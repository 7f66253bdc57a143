"""Laws of the profile: closed forms against refitting, coverage of conformal bands, interpolation on the right scale."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from codesign.sim.measurement import Measurements
from codesign.sim.ops import Copy
from codesign.sim.profile import fit_profile
from codesign.sim.profile.bands import conformal
from codesign.sim.profile.grids import fit_physical
from codesign.sim.profile.surface import fit_surface, matern


def test_leaving_a_shape_out_in_closed_form_equals_refitting_without_it() -> None:
    rng = np.random.default_rng(0)
    coords, values = rng.normal(size=(12, 2)), rng.normal(size=(12, 3))
    surface = fit_surface(coords, values)
    for out in range(12):
        rest = np.arange(12) != out
        inner = matern(coords[rest], coords[rest], surface.lengths) + surface.noise * np.eye(11)
        weights = np.linalg.solve(inner, values[rest] - surface.mean)
        guess = surface.mean + matern(coords[[out]], coords[rest], surface.lengths) @ weights
        assert np.allclose(guess[0], surface.left_out[out])


def test_leaving_a_fold_out_in_closed_form_equals_refitting_without_it() -> None:
    rng = np.random.default_rng(1)
    coords, values, folds = rng.normal(size=(12, 2)), rng.normal(size=(12, 2)), np.arange(12) % 3
    surface = fit_surface(coords, values, folds)
    rest = folds != 1
    inner = matern(coords[rest], coords[rest], surface.lengths) + surface.noise * np.eye(int(rest.sum()))
    guess = surface.mean + matern(coords[~rest], coords[rest], surface.lengths) @ np.linalg.solve(
        inner, values[rest] - surface.mean
    )
    assert np.allclose(guess, surface.left_out[~rest])


def test_a_conformal_band_covers_nine_of_ten_new_scores_on_average() -> None:
    """Coverage of split conformal with n scores is Beta distributed; over 400 draws the mean is within 1 % of 0.9."""
    rng = np.random.default_rng(2)
    covered = [
        float((rng.exponential(size=500) <= conformal(rng.exponential(size=99))).mean()) for _ in range(400)
    ]
    assert np.mean(covered) == pytest.approx(0.9, abs=0.01)


def test_the_physical_form_is_found_from_times_that_follow_it() -> None:
    moved = np.array([1e3, 1e6, 1e8, 1e9, 1e3, 1e6])
    flops = np.array([1e6, 1e6, 1e9, 1e12, 1e12, 1e9])
    seconds = 5e-6 + moved / 2e11 + flops / 1e13
    launch, per_byte, per_flop = fit_physical(flops, moved, seconds)
    assert launch == pytest.approx(5e-6, rel=1e-6)
    assert 1 / per_byte == pytest.approx(2e11, rel=1e-6)
    assert 1 / per_flop == pytest.approx(1e13, rel=1e-6)


def linear_cost(sizes: list[int]) -> Measurements:
    """Case B22: 2 + 0.125 n microseconds."""
    rows = pd.DataFrame({"size_bytes": sizes, "seconds": [(2 + 0.125 * n) * 1e-6 for n in sizes]})
    return Measurements("copy", rows, "case B22")


def test_a_linear_cost_is_interpolated_linearly_and_grid_points_come_back_unchanged() -> None:
    """Case B22: at 128 linear gives 18.0, a blend of logarithms 22 % more."""
    profile = fit_profile([linear_cost([16, 64, 256, 1024])], system="case")
    answer = profile.query(Copy(np.array([64, 128, 256])))
    assert answer.seconds[[0, 2]].tolist() == pytest.approx([10e-6, 34e-6], rel=1e-12)
    assert answer.seconds[1] == pytest.approx(18e-6, rel=1e-3)
    assert answer.words == ["measured grid", "interpolated", "measured grid"]
    errors = profile.laws["copy"].interpolation_errors
    assert errors["seconds over size"] < 1e-6 < errors["log seconds over log size"]


def test_beyond_the_data_the_physical_form_goes_on_and_says_so() -> None:
    profile = fit_profile([linear_cost([16, 64, 256, 1024])], system="case")
    answer = profile.query(Copy(np.array([1024, 4096, 8192])))
    assert answer.words[1:] == ["extrapolated", "extrapolated"]
    assert answer.seconds[1:].tolist() == pytest.approx([514e-6, 1026e-6], rel=1e-3)
    widths = answer.high / answer.low
    assert widths[1] > widths[0]
    assert (np.diff(answer.seconds) > 0).all()
