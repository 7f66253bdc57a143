"""Calibration: nothing measured is lost, held-out shapes are whole, and a resumed run is the same run."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from codesign.errors import InputFileError, RunError, UsageError
from codesign.sim.catalog import load_model
from codesign.sim.measurement import load_measurements
from codesign.sim.ops import Copy, DecodeAttention, Gemm, GroupedGemm, operation_entry
from codesign.workbench.calibration_journal import Visit, open_journal
from codesign.workbench.calibration_model import model_operations
from codesign.workbench.calibration_plan import SUITES, Limits, plan
from codesign.workbench.calibration_result import OperationSummary, collect, run_spread

FAST = Limits(flops_per_s=1e15, bytes_per_s=1e12, longest_s=1.0, arena_bytes=2**40)
HEADER = {"cpu": "a processor", "threads": 1}


def visit(key="gemm m=1", turn=0, samples=(1e-3, 2e-3), **more):
    return Visit(key, turn, "gemm", tuple(samples), **more)


@pytest.mark.parametrize("suite", SUITES)
def test_every_operation_of_a_plan_has_rows_to_fit_and_whole_shapes_held_out(suite):
    cases = plan(suite, FAST)
    assert len({case.key for case in cases}) == len(cases)
    for name in {case.name for case in cases}:
        steps = operation_entry(name).steps
        wholes = {True: set(), False: set()}
        for case in cases:
            if case.name == name:
                wholes[case.held_out].add(tuple((k, v) for k, v in case.shape.items() if k not in steps))
        rows = [case.held_out for case in cases if case.name == name]
        assert 0 < sum(rows) < len(rows), name
        if len(wholes[True] | wholes[False]) >= 8:
            assert not wholes[True] & wholes[False], name


def test_shapes_of_a_model_that_is_asked_for_are_measured_and_fitted():
    spec = load_model("qwen3-30b-a3b")
    wanted = model_operations(spec, full=False)
    cases = {case.operation: case.held_out for case in plan("quick", FAST, wanted=wanted)}
    assert set(wanted) <= set(cases)
    assert not any(cases[operation] for operation in wanted)
    assert GroupedGemm(1, 2048, 768, 128, 8) in wanted
    assert DecodeAttention(1, 1024, 32, 4, 128) in wanted
    assert any(cases.values())


def test_a_latent_model_has_experts_in_the_latent_width_and_both_projections():
    spec = load_model("nemotron-3-super")
    ffn = spec.moe
    wanted = model_operations(spec, full=False)
    assert any(op.name == "moe" and (op.hidden, op.gated) == (ffn.latent, False) for op in wanted)
    assert {(ffn.latent, ffn.hidden), (ffn.hidden, ffn.latent)} <= {
        (op.n, op.k) for op in wanted if op.name == "gemm"
    }
    assert any(op.name == "scan" for op in wanted)


def test_shapes_are_held_out_by_their_own_hash_whatever_else_is_measured():
    alone = {case.key: case.held_out for case in plan("full", FAST, operations=["gemm"])}
    with_all = {case.key: case.held_out for case in plan("full", FAST) if case.name == "gemm"}
    assert alone == with_all
    assert 0.1 < np.mean(list(alone.values())) < 0.4


def test_calls_that_take_too_long_or_too_much_memory_are_not_planned():
    slow = Limits(flops_per_s=1e9, bytes_per_s=1e9, longest_s=0.01, arena_bytes=2**26)
    cases = plan("full", slow)
    assert 0 < len(cases) < len(plan("full", FAST))
    assert all(float(case.operation.flops) <= 1e7 for case in cases)


def test_a_machine_that_can_do_nothing_in_time_says_so():
    with pytest.raises(UsageError, match="no shape fits"):
        plan("quick", Limits(1.0, 1.0, 1e-9, 1))


@pytest.mark.parametrize(
    ("suite", "operations", "message"),
    [("fast", (), "unknown suite 'fast'"), ("quick", ["gem"], "did you mean 'gemm'")],
)
def test_unknown_names_are_refused_with_the_nearest_known_one(suite, operations, message):
    with pytest.raises(UsageError, match=message):
        plan(suite, FAST, operations=operations)


def test_what_was_appended_is_there_after_a_crash_and_a_torn_line_is_dropped(tmp_path):
    path = tmp_path / "journal.jsonl"
    with open_journal(path, HEADER, resume=True) as journal:
        journal.append(visit(turn=0, first_call_s=0.5, warnings=("slow",)))
        journal.append(visit(turn=1))
        assert path.read_text().count("\n") == 3  # on disk while the run goes on
    path.write_text(path.read_text() + visit(turn=2).to_line()[:-9])
    with open_journal(path, HEADER, resume=True) as journal:
        assert journal.visits == [visit(turn=0, first_call_s=0.5, warnings=("slow",)), visit(turn=1)]
        journal.append(visit(turn=2))
    with open_journal(path, HEADER, resume=True) as journal:
        assert journal.done() == {("gemm m=1", turn) for turn in range(3)}


def test_without_resuming_a_journal_starts_anew(tmp_path):
    path = tmp_path / "journal.jsonl"
    with open_journal(path, HEADER, resume=True) as journal:
        journal.append(visit())
    with open_journal(path, {"cpu": "another"}, resume=False) as journal:
        assert journal.visits == []


def test_a_journal_of_another_machine_is_not_continued_and_the_difference_is_named(tmp_path):
    path = tmp_path / "journal.jsonl"
    open_journal(path, HEADER, resume=True).__exit__(None, None, None)
    with pytest.raises(UsageError, match=r"threads: 1 there, 2 now.*measure anew"):
        open_journal(path, {**HEADER, "threads": 2}, resume=True)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            '{"key": "a", "round": 0, "kernel": "k", "samples_s": [0.0]}',
            r"line 2, 'a': samples_s must be seconds above 0",
        ),
        ('{"key": "a", "round": 0, "kernel": "k", "samples_s": [-1]}', "seconds above 0"),
        ('{"key": "a", "round": 0, "kernel": "k", "samples_s": [NaN]}', "seconds above 0"),
        ('{"key": "a", "round": 0, "kernel": "k", "samples_s": []}', "seconds above 0"),
        ('{"key": "a", "kernel": "k", "samples_s": [1]}', "lacks or misstates 'round'"),
        ("[1]", "must be an object, got list"),
        ("{", "line 2: is not JSON"),
    ],
)
def test_a_journal_with_impossible_rows_is_refused_with_the_line(tmp_path, line, message):
    path = tmp_path / "journal.jsonl"
    open_journal(path, HEADER, resume=True).__exit__(None, None, None)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(InputFileError, match=message):
        open_journal(path, HEADER, resume=True)


def test_a_file_that_is_no_journal_is_not_overwritten(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_text('{"my": "notes"}\n')
    with pytest.raises(InputFileError, match="is no calibration journal"):
        open_journal(path, HEADER, resume=True)
    assert path.read_text() == '{"my": "notes"}\n'


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write"):
        open_journal(tmp_path / "file" / "journal.jsonl", HEADER, resume=True)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")  # noqa: PTH110
def test_a_full_disk_says_how_much_is_kept(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = open_journal(path, HEADER, resume=True)
    journal.append(visit())
    journal._stream.close()
    journal._stream = open("/dev/full", "w")  # noqa: PTH123, SIM115
    with (
        pytest.raises(RunError, match="No space left on device; the 1 visits before this one are kept"),
        journal,
    ):
        journal.append(visit(turn=1))
    with open_journal(path, HEADER, resume=True) as again:
        assert again.visits == [visit()]


def test_the_spread_between_rounds_is_that_of_their_medians():
    visits = [
        visit(turn=turn, samples=(value, value, 100.0))
        for turn, value in enumerate([1.0, 2.0, 3.0, 4.0, 5.0])
    ]
    assert run_spread(visits) == pytest.approx((4 - 2) / 3)
    assert run_spread(visits[:1]) is None


def summary(median_ape, p90_ape, spread_median=0.01, spread_p90=0.05):
    return OperationSummary("gemm", 9, 2, spread_median, spread_p90, 0.5, median_ape, p90_ape)


def test_errors_are_judged_by_the_bar_or_twice_the_spread_whichever_is_larger():
    assert summary(0.07, 0.20).passes
    assert not summary(0.071, 0.20).passes
    assert not summary(0.07, 0.21).passes
    assert summary(0.10, 0.30, spread_median=0.05, spread_p90=0.15).passes
    assert summary(None, None).passes is None


class Roof:
    bytes_per_s, flops_per_s = 1e10, {"bf16": 1e11}

    def to_dict(self):
        return {"bytes_per_s": self.bytes_per_s}

    def floor_s(self, operation):
        return float(operation.flops) / 1e11


def test_a_table_holds_the_quietest_round_s_median_and_lists_what_was_not_reached(tmp_path):
    cases = plan("quick", FAST, operations=["gemm"])[:3]
    visits = [
        visit(cases[0].key, 0, (1e-3, 3e-3, 9e-3)),
        visit(cases[0].key, 1, (2e-3,)),
        visit(cases[1].key, 0, (5e-3,)),
    ]
    result = collect(cases, visits, Roof(), {"cpu": "a processor", "torch": "2"}, tmp_path)
    table = load_measurements(tmp_path / "gemm")
    assert table.rows["seconds"].tolist() == [2e-3, 5e-3]
    assert [list(one) for one in table.rows["samples"]] == [[1e-3, 3e-3, 9e-3, 2e-3], [5e-3]]
    assert table.rows["held_out"].tolist() == [case.held_out for case in cases[:2]]
    assert table.environment["cpu"] == "a processor"
    assert result.unmeasured == (cases[2].key,)
    floors = [float(case.operation.flops) / 1e11 for case in cases[:2]]
    assert result.summaries[0].roof_share_median == pytest.approx(
        np.median([floors[0] / 2e-3, floors[1] / 5e-3])
    )
    assert any("1 shapes were not reached" in line for line in result.lines())
    told = json.loads(json.dumps(result.to_dict()))
    assert told["operations"]["gemm"]["rows"] == 2
    assert "median_ape" not in told["operations"]["gemm"]  # nothing was fitted yet
    assert told["unmeasured"] == 1


def test_nothing_measured_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="nothing was measured"):
        collect(plan("quick", FAST, operations=["copy"]), [], Roof(), {}, tmp_path)


def test_a_key_names_its_shape():
    (case, *_) = plan("quick", FAST, operations=["copy"])
    assert isinstance(case.operation, Copy)
    assert case.key == "copy size_bytes=4096 source=host target=host pinned=False"
    assert Gemm(1, 2, 3).name == "gemm"


def test_interrupted_and_resumed_a_calibration_measures_every_case_once_a_round(tmp_path):
    pytest.importorskip("torch")
    from codesign.workbench.calibrate import calibrate

    settings = {"out": tmp_path, "operations": ["router_top_k"], "threads": 1, "rounds": 2, "budget_s": 60.0}

    def stop(done, total, left_s, what):
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(RunError, match=r"interrupted after \d+ visits; they are kept"):
        calibrate(**settings, progress=stop)
    first = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    assert len({(line["key"], line["round"]) for line in first[1:]}) == 5
    result = calibrate(**settings)
    lines = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    assert lines[: len(first)] == first
    keys = {(line["key"], line["round"]) for line in lines[1:]}
    assert len(keys) == 2 * result.summaries[0].rows
    assert result.unmeasured == ()
    with pytest.raises(UsageError, match="rounds: 2 there, 3 now"):
        calibrate(**{**settings, "rounds": 3})
