"""Prices from a profile: measured where it was measured, the sheet where it was not, and the result says which."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from codesign import synthesise
from codesign.errors import UsageError
from codesign.sim.catalog import load_hardware, load_model
from codesign.sim.measurement import Measurements
from codesign.sim.ops import Gemm
from codesign.sim.pass_sizes import PassSizes
from codesign.sim.profile import Profile, fit_profile, roof_of
from codesign.sim.profile_prices import ProfilePrices
from codesign.sim.roofline import RooflinePrices
from codesign.workbench.profiles import mismatches
from codesign.workbench.replay import replay

SLOWDOWN = 3.0
SHEET = load_hardware("h200-sxm")


def gemm_profile(hardware: str | None = "h200-sxm") -> Profile:
    """Every product takes three times its roof; sizes cover what small models multiply."""
    sizes = [(m, n, k) for m in (1, 4, 16, 64, 256) for n in (32, 64, 128, 512, 2048) for k in (64, 128, 512, 2048)]
    rows = pd.DataFrame(sizes, columns=["m", "n", "k"])
    work = Gemm(rows["m"].to_numpy(), rows["n"].to_numpy(), rows["k"].to_numpy())
    rows["seconds"] = SLOWDOWN * roof_of(SHEET).seconds(work)
    for name, value in (("system", "made"), ("framework", "test"), ("version", "1"), ("kernel", "made")):
        rows[name] = value
    for name in ("weights", "activations", "out"):
        rows[name] = "bf16"
    environment = {} if hardware is None else {"hardware": hardware}
    table = Measurements("gemm", rows, "made for this test", environment=environment)
    return fit_profile([table], system="made", roof=roof_of(SHEET), threads=1, models=False)


@pytest.fixture(scope="module")
def profile() -> Profile:
    return gemm_profile()


def test_a_measured_product_costs_what_was_measured(profile: Profile) -> None:
    tokens = np.array([1.0, 16.0, 256.0])
    sheet = RooflinePrices(SHEET, "bf16").products(tokens, ((128, 512),), "bf16")
    measured = ProfilePrices(SHEET, "bf16", profile).products(tokens, ((128, 512),), "bf16")
    assert measured == pytest.approx(SLOWDOWN * sheet, rel=0.02)


def test_no_tokens_cost_nothing(profile: Profile) -> None:
    assert ProfilePrices(SHEET, "bf16", profile).products(np.zeros(3), ((128, 512),), "bf16").tolist() == [0, 0, 0]


def test_what_the_profile_lacks_is_the_sheets_and_is_named(profile: Profile) -> None:
    prices, sheet = ProfilePrices(SHEET, "bf16", profile), RooflinePrices(SHEET, "bf16")
    sizes = PassSizes(np.array([1, 1]), np.array([10, 200]), np.array([1, 1]))
    mixer = load_model("olmoe-1b-7b").layers[0].mixer
    assert mixer is not None
    assert prices.attention(mixer, sizes).tolist() == sheet.attention(mixer, sizes).tolist()  # type: ignore[arg-type]
    assert prices.copy_s(10**7) == sheet.copy_s(10**7)
    prices.products(np.ones(1), ((128, 512),), "bf16")
    assert "measured profile of made for gemm" in prices.source()
    assert "roofline of h200-sxm for attention_decode, copy" in prices.source()


def test_every_answer_of_a_profile_stands_in_the_provenance_with_its_band(profile: Profile) -> None:
    prices = ProfilePrices(SHEET, "bf16", profile)
    prices.products(np.array([1.0]), ((128, 512),), "bf16")
    prices.products(np.array([8.0]), ((128, 768),), "bf16")
    rows = {str(row["name"]): row for row in prices.provenance()}
    assert rows["gemm: measured grid"]["source"] == "made for this test"
    assert float(str(rows["gemm: interpolated"]["value"])) > 0
    assert "% half width" in str(rows["gemm: interpolated"]["unit"])


def test_a_replay_with_a_profile_takes_longer_than_the_roof_and_moves_the_same_bytes(profile: Profile) -> None:
    trace = synthesise(num_tokens=40, num_layers=16, num_experts=64, top_k=8, rng=np.random.default_rng(0))
    options = {"model": "olmoe-1b-7b", "hardware": SHEET, "policies": ("lru",), "capacities": ("25%",)}
    plain, priced = replay(trace, **options), replay(trace, profile=profile, **options)  # type: ignore[arg-type]
    assert (priced.rows["compute_busy_s"] > 1.5 * plain.rows["compute_busy_s"]).all()
    assert priced.rows["bytes_moved"].tolist() == plain.rows["bytes_moved"].tolist()
    assert priced.run["costs"]["source"].startswith("measured profile of made")


def test_a_profile_without_hardware_is_refused(profile: Profile) -> None:
    trace = synthesise(num_tokens=4, num_layers=16, num_experts=64, top_k=8, rng=np.random.default_rng(0))
    with pytest.raises(UsageError, match="give --hardware too"):
        replay(trace, model="olmoe-1b-7b", profile=profile)


def test_a_profile_of_another_machine_is_noted(profile: Profile) -> None:
    assert mismatches(profile, SHEET) == []
    other = dataclasses.replace(SHEET, name="rtx-4090")
    assert mismatches(profile, other) == [
        "the profile was measured on h200-sxm and the hardware sheet is rtx-4090: times mix two machines"
    ]
