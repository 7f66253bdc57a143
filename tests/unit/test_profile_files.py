"""A profile on disk and its answers: the same after loading, quick, and refused where it is damaged."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from codesign.errors import InputFileError, UsageError
from codesign.sim.measurement import Measurements
from codesign.sim.ops import Gemm, GroupedGemm
from codesign.sim.profile import Profile, Roof, fit_profile, load_profile, save_profile

ROOF = Roof(1e12, {"bf16": 1e14, "fp8": 2e14}, processors=100)


def made_up(shapes: int = 8, seed: int = 0) -> Measurements:
    """Times near a roofline, with a law of their own and 1 % noise."""
    rng = np.random.default_rng(seed)
    sizes = [128 * 2**i for i in range(shapes)]
    rows = pd.DataFrame(
        [(m, n, k) for n in sizes for k in sizes for m in (1, 16, 256, 4096)], columns=["m", "n", "k"]
    )
    work = ROOF.seconds(Gemm(rows.m.to_numpy(), rows.n.to_numpy(), rows.k.to_numpy())) + 5e-6
    rows["seconds"] = work * (1.3 + 0.1 * np.log2(rows.n) / 10) * np.exp(rng.normal(0, 0.01, len(rows)))
    return Measurements(
        "gemm", rows.assign(framework="f", kernel="k", weights="bf16", activations="bf16"), "made up"
    )


@pytest.fixture(scope="module")
def profile() -> Profile:
    return fit_profile([made_up()], system="made-up", roof=ROOF)


def test_a_loaded_profile_answers_as_the_fitted_one(profile: Profile, tmp_path: Path) -> None:
    save_profile(profile, tmp_path / "p")
    loaded = load_profile(tmp_path / "p")
    asked = Gemm(np.array([1, 100, 4096, 9999]), np.array([128, 384, 640, 1 << 18]), 1024)
    first, second = profile.query(asked), loaded.query(asked)
    assert np.allclose(first.seconds, second.seconds, rtol=1e-5)
    assert np.allclose(first.high, second.high, rtol=1e-5)
    assert first.words == second.words == ["measured grid", "interpolated", "interpolated", "extrapolated"]


def test_a_shape_never_measured_is_guessed_within_the_noise(profile: Profile) -> None:
    asked = Gemm(np.array([1, 16, 256, 4096]), 3000, 1500)
    true = (ROOF.seconds(asked) + 5e-6) * (1.3 + 0.1 * np.log2(3000) / 10)
    answer = profile.query(asked)
    assert np.abs(answer.seconds / true - 1).max() < 0.03  # three times the noise
    assert ((answer.low < answer.seconds) & (answer.seconds < answer.high)).all()


def test_formats_that_nobody_measured_are_answered_by_the_roofline(profile: Profile) -> None:
    answer = profile.query(Gemm(16, 1024, 1024, weights="fp8", activations="fp8"))
    assert answer.words == ["roofline"]
    assert float(answer.seconds) == pytest.approx(
        float(ROOF.seconds(Gemm(16, 1024, 1024, "fp8", "fp8"))) + ROOF.launch_s
    )


def test_an_operation_that_the_profile_lacks_is_named(profile: Profile) -> None:
    with pytest.raises(UsageError, match=r"'moe'.*known: gemm"):
        profile.query(GroupedGemm(1, 64, 64, 8, 2))


def test_a_million_queries_take_less_than_a_second(profile: Profile) -> None:
    rng = np.random.default_rng(0)
    asked = Gemm(rng.integers(1, 4096, 1_000_000), 1024, 2048)
    profile.query(Gemm(np.array([1, 2]), 1024, 2048))  # compiles
    times = []
    for _ in range(3):
        start = time.perf_counter()
        profile.query(asked)
        times.append(time.perf_counter() - start)
    assert min(times) < 1.0


def test_loading_is_quick_and_needs_no_fitting_library(profile: Profile, tmp_path: Path) -> None:
    save_profile(profile, tmp_path / "p")
    load_profile(tmp_path / "p")
    start = time.perf_counter()
    load_profile(tmp_path / "p")
    assert time.perf_counter() - start < 0.3
    code = (
        "import sys; from codesign.sim.profile import load_profile; from codesign.sim.ops import Gemm; "
        f"p = load_profile({str(tmp_path / 'p')!r}); p.query(Gemm(3, 700, 900)); "
        "assert not {'lightgbm', 'sklearn', 'torch'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=tmp_path).returncode == 0


def test_a_damaged_profile_is_refused(profile: Profile, tmp_path: Path) -> None:
    header = save_profile(profile, tmp_path / "p")
    text = header.read_text()
    header.write_text(text.replace("schema = 2", "schema = 7"))
    with pytest.raises(InputFileError, match="calibrate again"):
        load_profile(tmp_path / "p")
    header.write_text(text.replace("interpolation = ", "interpolated = "))
    with pytest.raises(InputFileError, match="incomplete or damaged"):
        load_profile(tmp_path / "p")
    header.write_text(text)
    table = next(tmp_path.glob("*.parquet"))
    table.write_bytes(table.read_bytes()[:-1])
    with pytest.raises(InputFileError, match="SHA-256"):
        load_profile(tmp_path / "p")


def test_fitting_twice_gives_the_same_answers() -> None:
    asked = Gemm(np.array([3, 100]), 3000, 700)
    first, second = (fit_profile([made_up()], system="s", roof=ROOF).query(asked).seconds for _ in range(2))
    assert (first == second).all()


def test_exported_trees_sum_as_the_library_that_fitted_them() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    from codesign.sim.profile.trees import flattened

    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 3))
    data = lightgbm.Dataset(X, X[:, 0] * np.sign(X[:, 1]), params={"verbose": -1})
    booster = lightgbm.train({"objective": "mae", "num_threads": 1, "verbose": -1}, data, 20)
    fresh = rng.normal(size=(500, 3))
    assert np.allclose(flattened(booster.dump_model()).predict(fresh), booster.predict(fresh))


def test_two_tables_of_one_operation_are_refused() -> None:
    with pytest.raises(UsageError, match="join them first"):
        fit_profile([made_up(2), made_up(2)], system="s", roof=ROOF)
