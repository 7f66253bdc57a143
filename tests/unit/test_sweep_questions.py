"""What a sweep is asked: the best with its ties, the Pareto front, two runs side by side; and the statistics behind."""

from __future__ import annotations

import itertools
from pathlib import Path

import codesign
import numpy as np
import pandas as pd
import pytest
from codesign.reports.sweep import page_figures, page_html, sweep_page, sweep_report
from codesign.workbench.compare import best, compare, front_of, pareto
from codesign.workbench.sweep import SweepResult, load_sweep, sweep
from codesign.workbench.sweep_query import column_of, subset
from codesign.workbench.sweep_statistics import mean_interval, paired, ratio_interval
from markupsafe import escape
from small_studies import write_study


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    folder = tmp_path_factory.mktemp("asked")
    axes = (
        'link_bytes_per_s = [1e9, 8e9]\npolicy = ["lru", "fifo", "belady-mandatory", "never", "unbounded"]\n'
        'prefetch = ["none", "perfect"]\ncapacity = ["10%", "50%"]\n'
    )
    return sweep(write_study(folder, axes), out=folder / "run", workers=1)


def test_the_best_choice_is_no_bound_and_no_oracle_and_has_the_least_time(run: SweepResult) -> None:
    answer = best(run, objective="tpot", top=99)
    rows = run.rows
    real = rows[rows["policy"].isin(["lru", "fifo"]) & (rows["prefetch"] == "none")]
    assert len(answer.rows) == len(real) == 8
    for speed, of_link in answer.rows.groupby("link_bytes_per_s"):
        least = real.loc[real["link_bytes_per_s"] == speed, "tpot_s"].min()
        first = of_link.iloc[0]
        assert first["tpot_s"] == least
        assert first["against_first"] == "first"
        assert first["tpot_s_low"] <= first["tpot_s"] <= first["tpot_s_high"]


def test_conditions_narrow_the_choice_and_an_empty_one_says_so(run: SweepResult) -> None:
    assert set(best(run, subject="capacity<=10%").rows["capacity"]) == {"10%"}
    assert set(best(run, subject="policy!=lru, link_bytes_per_s=8GB/s").rows["policy"]) == {"fifo"}
    with pytest.raises(codesign.UsageError, match="no scenario is left"):
        best(run, subject="capacity<=1,policy=lru")
    with pytest.raises(codesign.UsageError, match=r"unknown column 'tpto'; did you mean 'tpot'\?"):
        best(run, objective="tpto")


def test_the_page_names_the_source_of_every_number_of_its_inputs(run: SweepResult) -> None:
    page = sweep_page(run)
    assert {one.name for one in page.inputs if one.facts} == set(run.run["inputs"])
    (machine,) = (one for one in page.inputs if one.name.startswith("hardware:"))
    quantities = [fact for fact in machine.facts if fact.kind]
    assert len(quantities) >= 5
    assert all(fact.kind in ("measured", "datasheet", "assumed") and len(fact.source) > 5 for fact in quantities)
    text = page_html(page)
    for fact in quantities:
        assert str(escape(fact.source)) in text


def test_a_model_that_only_a_synthetic_trace_names_is_among_the_inputs(tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(
        'name = "synth"\n[traces.made.synth]\nmodel = "olmoe-1b-7b"\ntokens = 20\n'
        '[axes]\ntrace = ["made"]\npolicy = ["lru"]\ncapacity = ["10%"]\n'
    )
    swept = sweep(study, out=tmp_path / "run", workers=1)
    assert swept.run["counts"]["failed"] == 0
    assert len(swept.run["inputs"]["model:olmoe-1b-7b"]) == 64
    assert swept.run["described"]["model:olmoe-1b-7b"]["name"] == "olmoe-1b-7b"


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("capacity<=25%", [True, True, False]), ("capacity<1KiB", [True, False, False]), ("capacity>=32", [False, False, True]),
        ("tpot<2ms", [True, False, False]), ("policy=lru", [True, False, True]), ("is_bound=false", [True, True, False]),
        ("link_bytes_per_s>=4GB/s", [False, True, False]),
    ],
)  # fmt: skip
def test_a_condition_is_read_in_the_unit_it_is_written_in(condition: str, holds: list[bool]) -> None:
    rows = pd.DataFrame(
        {
            "capacity_experts": [3, 16, 32], "resident_share": [3 / 64, 16 / 64, 32 / 64], "capacity_bytes": [300, 1600, 3200],
            "tpot_s": [0.001, 0.002, np.nan], "policy": ["lru", "fifo", "lru"], "is_bound": [False, False, True],
            "link_bytes_per_s": [1e9, 4e9, np.nan],
        }
    )  # fmt: skip
    assert rows.index.isin(subset(rows, condition).index).tolist() == holds


@pytest.mark.parametrize(
    "condition", ["capacity", "capacity<=much", "policy<lru", "is_bound=perhaps", "nothing=1"]
)
def test_a_condition_that_is_none_is_refused(condition: str, run: SweepResult) -> None:
    with pytest.raises(codesign.UsageError):
        subset(run.rows, condition)


def test_the_front_is_what_no_other_row_beats() -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"tpot_s": rng.integers(0, 12, 60) / 7, "hit_rate": rng.integers(0, 12, 60) / 11})
    found = {(row.tpot_s, row.hit_rate) for row in front_of(rows, "tpot_s", "hit_rate").itertuples()}
    every = set(map(tuple, rows.to_numpy().tolist()))
    expected = {
        (t, h) for t, h in every
        if not any((u <= t and g >= h and (u, g) != (t, h)) for u, g in every)
    }  # fmt: skip
    assert found == expected


def test_the_front_of_a_run_falls_as_the_cache_grows(run: SweepResult) -> None:
    for _, front in pareto(run, x="capacity_bytes", y="tpot").rows.groupby("link_bytes_per_s"):
        assert front["capacity_bytes"].is_monotonic_increasing
        assert front["tpot_s"].is_monotonic_decreasing
    with pytest.raises(codesign.UsageError, match="choose two"):
        pareto(run, x="tpot", y="tpot_s")


def test_a_run_against_itself_is_ties_throughout(run: SweepResult) -> None:
    answer = compare(run, run)
    assert set(answer.rows["a_is"]) == {"tie"}
    assert (answer.rows["ratio"] == 1).all()
    assert len(answer.rows) == (run.rows["tpot_s"].notna()).sum()


def test_against_a_slower_machine_every_scenario_that_waits_is_better(
    run: SweepResult, tmp_path: Path
) -> None:
    axes = 'link_bytes_per_s = [1e9, 8e9]\npolicy = ["lru", "fifo"]\ncapacity = ["10%"]\ndecision_ns = {}\n'
    runs = [
        sweep(
            write_study(tmp_path / str(cost), axes.format(cost)), out=tmp_path / str(cost) / "run", workers=1
        )
        for cost in (0, 5_000_000)
    ]
    with pytest.raises(codesign.UsageError, match="no scenario in common"):
        compare(*runs)  # the cost of deciding is part of the setting
    slow, fast = (
        one.rows.set_index(["policy", "link_bytes_per_s"])["makespan_s"] for one in (runs[1], runs[0])
    )
    assert (slow > fast).all()


def test_better_needs_the_test_and_a_tie_is_called_one() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(10, 1, 20)
    assert paired(base - 0.5, base).verdict == "better"
    assert paired(base + 0.5, base).verdict == "worse"
    assert paired(base, base).verdict == "tie"
    assert paired(base + rng.normal(0, 0.5, 20), base).verdict == "tie"
    assert paired(base[:5] - 9, base[:5]).verdict == "untested"  # five pairs cannot reach 5 %
    assert paired(base[:6] - 9, base[:6]).verdict == "better"


def test_equal_policies_are_rarely_told_apart() -> None:
    """Under no difference the test errs in about one case in twenty."""
    rng = np.random.default_rng(1)
    wrong = sum(
        paired(rng.normal(0, 1, 16) + 9, rng.normal(0, 1, 16) + 9).verdict != "tie" for _ in range(200)
    )
    assert wrong <= 20  # expected 10; above 20 with a chance below 0.2 %


def test_an_interval_covers_the_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(100):
        found = mean_interval(rng.normal(5, 2, 40))
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 5 <= found.high
    assert 86 <= covered <= 100  # 95 % wanted, a little less from a percentile bootstrap of 40


def test_one_sequence_has_a_mean_and_no_interval() -> None:
    assert mean_interval(np.array([2.0, np.nan])).low is None
    assert mean_interval(np.array([np.nan])).mean is None


def test_the_page_shows_choices_figures_and_gaps_and_opens_alone(run: SweepResult, tmp_path: Path) -> None:
    page = sweep_page(run)
    assert len(page.choices) == 4  # two links × two capacities
    assert all(one.reasons for one in page.choices)
    assert {"heat", "curves", "gain", "latency", "traffic", "kinds", "layers", "pareto", "links"} == set(
        page_figures(page)
    )
    assert [line["capacity"] for line in page.gaps] == ["10%", "50%"] * 2
    text = sweep_report(run, tmp_path / "r.html").read_text(encoding="utf-8")
    assert 'id="choices"' in text
    assert 'src="http' not in text
    assert '<link rel="stylesheet"' not in text
    assert len(text) < 10_000_000


def test_a_name_from_a_study_is_shown_and_never_run(tmp_path: Path) -> None:
    study = write_study(tmp_path, 'policy = "lru"\ncapacity = "50%"\n')
    study.write_text(study.read_text().replace("[traces.t]", '[traces."<b>x</b><script>"]'))
    text = sweep_report(sweep(study, out=tmp_path / "run", workers=1), tmp_path / "r.html").read_text()
    body = text[: text.index('<script type="application/json"')]
    assert "<b>x</b>" not in body
    assert "&lt;b&gt;x" in body


def test_columns_have_short_names() -> None:
    assert [column_of(name) for name in ("tpot", "ttft", "traffic", "tpot_s")] == [
        "tpot_s", "ttft_s", "bytes_per_output_token", "tpot_s",
    ]  # fmt: skip


def test_the_leader_changes_where_the_lines_cross() -> None:
    from codesign.reports.sweep_info import _crossings

    def seconds(fixed: float, volume: float) -> dict[float, float]:
        return {speed: fixed * volume / speed for speed in (1e9, 16e9)}

    steep = {1e9: 8.0, 16e9: 1.0}
    flat = {1e9: 4.0, 16e9: 2.0}
    (text,) = _crossings({"steep": steep, "flat": flat}, [1e9, 16e9])
    assert text == "flat leads below 4 GB/s, steep above"  # by straight lines in the logarithms: halfway
    assert _crossings({"a": seconds(1, 1), "b": seconds(2, 1)}, [1e9, 16e9]) == ()


def test_a_run_reads_back_as_it_was(run: SweepResult) -> None:
    back = load_sweep(run.folder)
    assert back.run == run.run
    pd.testing.assert_frame_equal(back.rows, run.rows)
    names = [set(frame["scenario"]) for frame in (back.rows, back.sequences)]
    assert names[0] == names[1]
    assert all(a != b for a, b in itertools.pairwise(back.rows["scenario"]))


def test_times_and_hit_rates_have_bands_over_sequences(run: SweepResult) -> None:
    page = sweep_page(run)
    setting = page.settings[0]
    row = next(row for row in setting.rows if (row["policy"], row["prefetch"], row["capacity"]) == ("lru", "none", "50%"))
    for measure, figure in (("tpot_s", "latency"), ("hit_rate", "curves")):
        low, high = page.bands[measure].of[setting.name, "lru", "50%"]
        assert low < row[measure] < high
        assert any(trace.meta.get("band") for trace in page_figures(page)[figure][0].figures[0].data)
    assert page_html(page).count("by bootstrap over sequences;") == 2


def test_the_hits_of_sequences_add_up_to_the_row_and_hit_rates_are_tested_in_pairs(run: SweepResult) -> None:
    of = run.sequences.set_index("scenario")
    for row in run.rows.to_dict("records"):
        assert of.loc[row["scenario"], "hits"].sum() == row["hits"]
        assert of.loc[row["scenario"], "accesses"].sum() == row["accesses"]
    told = best(run, objective="hit_rate", subject="prefetch=none, policy!=never", top=9).rows
    hit = told[told["hit_rate"] > 0]
    assert len(hit) == 4
    assert ((hit["hit_rate_low"] < hit["hit_rate"]) & (hit["hit_rate"] < hit["hit_rate_high"])).all()
    assert set(told["against_first"]) <= {"first", "worse", "tie"}


def test_where_sequences_share_passes_hit_rates_have_bands_over_repeats_or_say_why_not(tmp_path: Path) -> None:
    axes = 'policy = ["lru"]\ncapacity = ["50%", "75%"]\nbatch = 4\n'
    one = sweep(write_study(tmp_path, axes), out=tmp_path / "one", workers=1)
    assert one.sequences["hits"].isna().all()
    assert "No bands: fewer than two repeats with a value of their own (sequences share passes" in page_html(sweep_page(one))
    study = write_study(tmp_path, axes, "several.toml")
    study.write_text(study.read_text().replace('name = "small"', 'name = "small"\nrepeats = 3'))
    several = sweep_page(sweep(study, out=tmp_path / "several", workers=1))
    assert len(several.bands["hit_rate"].of) == 2
    assert "by bootstrap over repeats;" in page_html(several)


def test_a_ratio_s_interval_is_that_of_the_sums() -> None:
    hits, accesses = np.array([1.0, 30.0, 0.0]), np.array([10.0, 40.0, 0.0])
    found = ratio_interval(hits, accesses)
    assert found.mean == 31 / 50
    assert found.low == pytest.approx(0.1)  # a sequence without accesses is never drawn
    assert found.high == pytest.approx(0.75)
    assert ratio_interval(hits[:1], accesses[:1]).low is None
    assert ratio_interval(hits[2:], accesses[2:]).mean is None


def test_the_layers_of_a_shown_scenario_add_up_to_its_row(run: SweepResult) -> None:
    row = run.rows[run.rows["policy"] == "lru"].iloc[0]
    layers = run.layers_of([row["scenario"]])[row["scenario"]]
    assert sum(layers["hits"]) == row["hits"]
    kinds = ("late", "collision", "compulsory", "capacity_misses")
    assert sum(sum(layers[kind]) for kind in kinds) == row["misses"]
    assert sum(layers["stall_ns"]) / 1e9 == pytest.approx(row["stall_s"])
    view = sweep_page(run).layers[0]
    assert {name.split(":")[0].split(" ")[0] for name in view.lines} >= {"lru", "belady-mandatory"}
