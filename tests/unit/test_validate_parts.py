"""The study `validate` in parts: bands, fitting, twins, order, and a user's own measurements. Times here are made up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from codesign.errors import InputFileError, UsageError
from codesign.traces import synthesise, trace_info
from codesign.workbench.validate import validate, validate_suite
from codesign.workbench.validate_band import binomial_p, half_width, scores_of, spread_of
from codesign.workbench.validate_cases import Link, calibration_cases, cut_trace, suite_groups, twin_trace
from codesign.workbench.validate_fit import Fitted, _closed, predict
from codesign.workbench.validate_measured import read_measured
from codesign.workbench.validate_result import Metric, ScenarioResult, ValidationResult, order_of
from codesign.workbench.validate_run import Measured, Sample, prepare


def test_a_band_from_exchangeable_scores_covers_nine_in_ten() -> None:
    rng = np.random.default_rng(0)
    covered = [abs(rng.normal()) <= (half_width(np.abs(rng.normal(size=30))) or 0) for _ in range(4000)]
    assert np.mean(covered) == pytest.approx(28 / 31, abs=0.02)  # rank ⌈31 · 0.9⌉ = 28 of 30 scores


def test_fewer_than_nine_scores_give_no_band() -> None:
    assert half_width([0.1] * 8) is None
    assert half_width([*([0.1] * 8), 0.3]) == 0.3


def test_the_binomial_p_is_the_sum_of_outcomes_no_likelier() -> None:
    """Five values, 0.9: the probabilities of 3 and fewer inside, and of 5, by hand."""
    three_or_fewer = 1 - 0.9**5 - 5 * 0.9**4 * 0.1
    assert binomial_p(3, 5) == pytest.approx(three_or_fewer)
    assert binomial_p(5, 5) == pytest.approx(1)
    assert binomial_p(0, 5) == pytest.approx(0.1**5)


def test_scores_and_spread_follow_their_definitions() -> None:
    assert scores_of([2.0, 1.0], [1.0, 2.0]) == pytest.approx([np.log(2), np.log(2)])
    assert spread_of([1, 2, 3, 4, 5]) == pytest.approx((4 - 2) / 3)
    assert spread_of([1.0]) is None


def test_a_twin_has_the_same_passes_and_reuse_and_another_routing() -> None:
    trace = synthesise(
        num_tokens=400, num_layers=3, num_experts=16, top_k=2, num_sequences=2, prefill_tokens=10, reuse=0.5,
        guess_recall=0.8, rng=np.random.default_rng(0),
    )  # fmt: skip
    twin = twin_trace(trace, np.random.default_rng(1))
    twin.check_ids()
    assert (twin.is_prefill_T == trace.is_prefill_T).all()
    assert np.mean(twin.experts_TLK == trace.experts_TLK) < 0.3
    one, two = (trace_info(found).to_dict() for found in (trace, twin))
    key = next(name for name in one if "reuse" in name)
    assert str(one[key])[:3] == str(two[key])[:3] or one.keys() == two.keys()


def test_a_twins_guesses_stay_as_good_as_the_originals() -> None:
    trace = synthesise(
        num_tokens=300, num_layers=3, num_experts=16, top_k=2, guess_recall=0.8, rng=np.random.default_rng(0)
    )

    def recall(found: object) -> float:
        ids, guess = found.experts_TLK, found.predicted_TLHM  # type: ignore[attr-defined]
        return float(np.mean([np.isin(ids[t, 1], guess[t, 0, 0]).mean() for t in range(300)]))

    assert recall(twin_trace(trace, np.random.default_rng(3))) == pytest.approx(recall(trace), abs=1e-9)


def test_a_cut_trace_keeps_its_first_rows_and_the_sequences_that_begin_in_them() -> None:
    trace = synthesise(
        num_tokens=30, num_layers=2, num_experts=8, top_k=2, num_sequences=3, rng=np.random.default_rng(0)
    )
    cut = cut_trace(trace, 15)
    assert cut.num_tokens == 15
    assert cut.sequence_start_S.tolist() == [0, 10]
    np.testing.assert_array_equal(cut.experts_TLK, trace.experts_TLK[:15])


def test_the_suite_is_what_it_is_said_to_be() -> None:
    groups = suite_groups()
    judged = [(group, case) for group in groups for case in group.among("judged")]
    assert len(judged) >= 24
    tiers = [group.link.tier for group, _ in judged]
    assert {tiers.count(tier) for tier in ("file", "host", "paced")} == {len(judged) // 3}
    assert sum(case.prefetch != "none" for _, case in judged) >= 8
    for group in groups:
        routed = [group.traces[purpose].experts_TLK for purpose in ("fit", "band", "judged")]
        assert not any(np.array_equal(routed[a], routed[b]) for a, b in ((0, 1), (0, 2), (1, 2)))


def made_up(copy_ns: int = 700_000) -> tuple[Fitted, list[Measured]]:
    """Costs, and the runs a machine of just those costs would give: no noise."""
    (group,) = suite_groups(tiers=("host",), groups=1, tokens=8)
    runs = []
    for case in group.cases:
        runs.append(Measured(prepare(group, case, 3 * 512 * 512 * 4)))
    passes = runs[0].prepared.passes
    layers = runs[0].prepared.source.trace.num_layers
    classes = np.ones(layers, np.int32)
    classes[0], classes[-1] = 0, 2
    tokens = passes.tokens()
    each = np.repeat(tokens[:, None], 3, 1) * 10_000
    truth = Fitted(
        before_ns_PC=each + 200_000, resident_ns_PC=each * 0, after_ns_PC=each, copy_ns=copy_ns, copy_direct_ns=copy_ns,
        expert_ns_N=np.arange(tokens.max() + 1) * 100_000, decision_ns=50_000, layer_class_L=classes, expert_bytes=3 * 512 * 512 * 4,
    )  # fmt: skip
    for run in runs:
        found = predict(truth, run.prepared)
        run.ledger, run.layer_counts = found.result.ledger, found.result.layer_counts
        empty = np.zeros(1, np.int64)
        run.samples = [
            Sample(
                found.tpot_s, found.ttft_s, found.makespan_s, found.event_ns, np.zeros((6, *found.event_ns.shape)), empty, empty,
                np.array([copy_ns]), found.shares, None, found.result.ledger.late or 0,
            )
        ] * 7  # fmt: skip
    return truth, runs


def test_closing_finds_the_copy_time_of_a_machine_without_noise() -> None:
    from dataclasses import replace

    truth, runs = made_up()
    fit_runs = [run for run in runs if run.prepared.case.purpose == "fit"]
    found = _closed(replace(truth, copy_ns=500_000), fit_runs)
    assert found.copy_ns == pytest.approx(truth.copy_ns, rel=0.01)


def test_on_its_own_costs_a_prediction_is_exact_and_shares_add_up() -> None:
    truth, runs = made_up()
    for run in runs:
        found = predict(truth, run.prepared)
        assert found.tpot_s == run.samples[0].tpot_s
        assert sum(found.shares.values()) == pytest.approx(1)
        assert found.event_ns.sum() == pytest.approx(found.makespan_s * 1e9)


def result_of(
    group: str, predicted: float, measured: float, spread: float, *, equal: bool = True
) -> ScenarioResult:
    metric = Metric("tpot_s", predicted, predicted * 0.9, predicted * 1.1, measured, spread)
    shares = {"compute": 0.5, "stall": 0.4, "host": 0.1}
    return ScenarioResult(
        "n",
        group,
        "host",
        "lru",
        "none",
        4,
        (metric,),
        equal,
        0,
        0.0,
        0,
        0,
        shares,
        shares,
        None,
        (1.0,),
        10,
        9,
        7,
    )


def test_only_pairs_that_differ_by_more_than_the_spread_are_asked_for_their_order() -> None:
    results = [
        result_of("a", 1.0, 1.0, 0.02),
        result_of("a", 1.2, 1.01, 0.02),
        result_of("a", 2.0, 1.5, 0.02),
        result_of("b", 9, 9, 0),
    ]
    assert order_of(results) == (2, 2)
    assert order_of([result_of("a", 2.0, 1.0, 0.01), result_of("a", 1.0, 2.0, 0.01)]) == (0, 1)


def test_the_verdict_needs_every_scenario_within_and_every_ledger_equal() -> None:
    good, bad = result_of("a", 1.05, 1.0, 0.01), result_of("a", 1.2, 1.0, 0.01)
    assert ValidationResult((good,), 0.1, {}, {}).ok
    assert not ValidationResult((good, bad), 0.1, {}, {}).ok
    assert ValidationResult((good, bad), None, {}, {}).ok
    assert not ValidationResult((result_of("a", 1.0, 1.0, 0.01, equal=False),), None, {}, {}).ok


def test_twice_the_spread_counts_only_where_the_spread_is_small() -> None:
    steady = ValidationResult((result_of("a", 1.08, 1.0, 0.045),), None, {}, {}).bars()
    restless = ValidationResult((result_of("a", 1.08, 1.0, 0.2),), None, {}, {}).bars()
    assert steady["tpot_median_ape"]
    assert not restless["tpot_median_ape"]


def test_calibration_cases_hold_one_token_and_are_no_judged_ones() -> None:
    cases = calibration_cases(4, 8, 4, 10)
    assert min(case.experts for case in cases) > 4
    assert {case.purpose for case in cases} == {"fit", "band"}
    assert sum(case.purpose == "band" for case in cases) == 10


def test_requests_that_cannot_be_are_refused_before_anything_runs() -> None:
    with pytest.raises(UsageError, match="at least 7 repeats"):
        validate_suite(repeats=3)
    with pytest.raises(UsageError, match=r"within is a share"):
        validate_suite(within=0)
    with pytest.raises(UsageError, match="needs a trace and a model"):
        validate()
    with pytest.raises(UsageError, match="unknown tier 'tape'"):
        Link("tape")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scenario,metric,value\n", "lacks the column 'repeats'"),
        ("scenario,metric,value,repeats\ns.toml,speed,1,1\n", "line 2.*'speed' is none of"),
        ("scenario,metric,value,repeats\ns.toml,tpot_s,-1,1\n", "line 2.*value must be a number above 0"),
        ("scenario,metric,value,repeats\ns.toml,tpot_s,1,1.5\n", "whole number"),
        ("scenario,metric,value,repeats\n", "holds no measurements"),
    ],
)
def test_a_wrong_file_of_measurements_is_refused_by_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "m.csv"
    path.write_text(text)
    with pytest.raises(InputFileError, match=message):
        read_measured(path)


def test_measurements_are_set_beside_what_the_scenario_predicts(tmp_path: Path) -> None:
    from codesign.traces import read_trace, save_trace
    from codesign.traces.bundled import bundled_trace_path
    from codesign.workbench.replay import replay
    from codesign.workbench.validate_measured import compare_measured

    save_trace(cut_trace(read_trace(bundled_trace_path()), 120), tmp_path / "t.safetensors")
    (tmp_path / "s.toml").write_text(
        'trace = "t.safetensors"\nmodel = "small-olmoe-stdlib"\nhardware = "cpu-2core"\npolicies = ["lru"]\ncapacities = ["25%"]\n'
    )
    (tmp_path / "m.csv").write_text(
        "scenario,metric,value,repeats\ns.toml,tpot_s,0.004,1\ns.toml,tpot_s,0.002,2\n"
    )
    (found,) = compare_measured(tmp_path / "m.csv")
    table = replay(
        tmp_path / "t.safetensors",
        model="small-olmoe-stdlib",
        hardware="cpu-2core",
        policies=("lru",),
        capacities=("25%",),
    ).rows
    assert found.metric.predicted == float(table[table["policy"] == "lru"]["tpot_s"].iloc[0])
    assert (found.metric.measured, found.repeats) == (0.002, 3)
