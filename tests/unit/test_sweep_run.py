"""A sweep: the same bytes however it was run, interrupted or spread, and one bad scenario is one bad row."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import codesign
import numpy as np
import pytest
from codesign.workbench import sweep as sweep_module
from codesign.workbench import sweep_worker
from codesign.workbench.executors import run_in_processes
from codesign.workbench.study import load_study
from codesign.workbench.sweep import load_sweep, sweep
from codesign.workbench.sweep_inputs import prepare_inputs
from codesign.workbench.sweep_worker import Task
from small_scenarios import trace_of
from small_studies import AXES, tables, write_study


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted sweep in one process."""
    folder = tmp_path_factory.mktemp("whole")
    sweep(write_study(folder), out=folder / "run", workers=1)
    return folder


def test_its_rows_are_what_replay_finds(whole: Path) -> None:
    rows = load_sweep(whole / "run").rows
    trace = next((whole / "run" / "traces").iterdir())
    replayed = codesign.replay(
        trace, model="small-olmoe-stdlib", hardware="cpu-2core", policies=("lru", "least-stale"),
        prefetch=("none", "previous"), capacities=("10%", "50%"), timeline=False,
    ).rows  # fmt: skip
    ours = rows[(rows["status"] == "ok") & rows["link_bytes_per_s"].isna()]
    merged = ours.merge(
        replayed,
        left_on=["policy", "prefetch", "capacity_experts"],
        right_on=["policy", "prefetch", "capacity_experts"],
    )
    assert len(merged) == 10
    for name in (
        "hits",
        "misses",
        "late",
        "collision",
        "bytes_moved",
        "ttft_s",
        "tpot_s",
        "makespan_s",
        "decision_s",
    ):
        assert (merged[f"{name}_x"].astype(float) == merged[f"{name}_y"].astype(float)).all(), name


def test_a_slower_link_makes_every_scenario_with_misses_slower(whole: Path) -> None:
    rows = load_sweep(whole / "run").rows
    ok = rows[rows["status"] == "ok"]
    keys = ["policy", "prefetch", "capacity"]
    both = ok[ok["link_bytes_per_s"].isna()].merge(ok[ok["link_bytes_per_s"] == 2e9], on=keys)
    assert len(both) == 12
    assert (both["makespan_s_x"] < both["makespan_s_y"]).all()


def test_a_capacity_that_holds_no_token_is_a_row_with_its_reason(whole: Path) -> None:
    """Case B07: a comparison there is void, and the rest of the night goes on."""
    rows = load_sweep(whole / "run").rows
    failed = rows[rows["status"] == "failed"]
    assert set(failed["capacity"]) == {"2"}
    assert len(failed) == 12
    assert failed["error"].str.contains("fewer than the 4 that one token needs").all()
    assert failed["hit_rate"].isna().all()


def test_the_optimum_is_never_beaten_without_prefetch(whole: Path) -> None:
    """Case B08."""
    rows = load_sweep(whole / "run").rows
    plain = rows[(rows["status"] == "ok") & (rows["prefetch"] == "none") & rows["link_bytes_per_s"].isna()]
    for _, of_size in plain.groupby("capacity"):
        assert (
            of_size.loc[of_size["policy"] == "belady-mandatory", "misses"].item() == of_size["misses"].min()
        )


def test_stopped_after_any_row_it_resumes_to_the_same_bytes(whole: Path, tmp_path: Path) -> None:
    journal = (whole / "run" / "journal.jsonl").read_bytes()
    rng = np.random.default_rng(0)
    for cut in (0, 5, *rng.integers(0, len(journal), 4).tolist()):
        run = tmp_path / f"cut{cut}"
        run.mkdir()
        (run / "study.json").write_bytes((whole / "run" / "study.json").read_bytes())
        (run / "journal.jsonl").write_bytes(journal[:cut])
        result = sweep(whole / "study.toml", out=run, resume=True, workers=1)
        assert tables(run) == tables(whole / "run")
        assert result.ran + journal[:cut].count(b"\n") >= 36


def test_resuming_a_finished_sweep_runs_nothing_and_changes_nothing(whole: Path) -> None:
    before = tables(whole / "run")
    assert sweep(whole / "study.toml", out=whole / "run", resume=True, workers=1).ran == 0
    assert tables(whole / "run") == before


def test_a_sweep_is_not_overwritten_without_being_told(whole: Path) -> None:
    with pytest.raises(codesign.UsageError, match="--resume goes on with it"):
        sweep(whole / "study.toml", out=whole / "run")


def test_legal_repeats_are_kept_and_exact_duplicates_run_once(tmp_path: Path) -> None:
    """Case B25: six configurations, two alike but for their repeat; stopped after three, resumed twice."""
    axes = (
        '[[points]]\npolicy = "lru"\ncapacity = "50%"\nrepeat = 0\n[[points]]\npolicy = "lru"\ncapacity = "50%"\nrepeat = 1\n'
        + "".join(
            f'[[points]]\npolicy = "{name}"\ncapacity = "50%"\n'
            for name in ("fifo", "lfu", "sieve", "clock", "fifo")
        )
    )
    study = write_study(tmp_path, axes)
    study.write_text('kind = "list"\n' + study.read_text())
    once = sweep(study, out=tmp_path / "once", workers=1)
    assert once.run["counts"]["scenarios"] == 6
    assert once.run["counts"]["duplicates"] == 1
    lines = (tmp_path / "once" / "journal.jsonl").read_bytes().splitlines(keepends=True)
    run = tmp_path / "again"
    run.mkdir()
    (run / "study.json").write_bytes((tmp_path / "once" / "study.json").read_bytes())
    (run / "journal.jsonl").write_bytes(b"".join(lines[:4]))
    assert sweep(study, out=run, resume=True, workers=1).ran == 3
    assert sweep(study, out=run, resume=True, workers=1).ran == 0
    assert tables(run) == tables(tmp_path / "once")
    assert len(load_sweep(run).rows["scenario"].unique()) == len(load_sweep(run).rows) == 6


def with_trace_file(tmp_path: Path) -> tuple[Path, Path]:
    trace = tmp_path / "t.safetensors"
    codesign.save_trace(
        trace_of(np.random.default_rng(0).permuted(np.tile(np.arange(8), (30, 2, 1)), axis=2)[..., :2], 8),
        trace,
    )
    study = tmp_path / "s.toml"
    study.write_text(
        '[traces.t]\npath = "t.safetensors"\n[axes]\npolicy = ["lru", "fifo"]\ncapacity = ["50%"]\n'
    )
    return trace, study


def test_a_changed_or_deleted_trace_is_refused_at_resume_with_the_reason(tmp_path: Path) -> None:
    trace, study = with_trace_file(tmp_path)
    sweep(study, out=tmp_path / "run", workers=1)
    codesign.save_trace(
        trace_of(np.random.default_rng(1).permuted(np.tile(np.arange(8), (30, 2, 1)), axis=2)[..., :2], 8),
        trace,
    )
    with pytest.raises(
        codesign.InputFileError, match=r"cannot be resumed: trace:t#0 changed \(SHA-256 .* → .*start afresh"
    ):
        sweep(study, out=tmp_path / "run", resume=True, workers=1)
    trace.unlink()
    with pytest.raises(codesign.InputFileError, match="no such file"):
        sweep(study, out=tmp_path / "run", resume=True, workers=1)


def test_an_edited_study_or_another_version_is_refused_at_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, study = with_trace_file(tmp_path)
    sweep(study, out=tmp_path / "run", workers=1)
    study.write_text(study.read_text().replace("50%", "60%"))
    with pytest.raises(codesign.InputFileError, match="the study itself was edited"):
        sweep(study, out=tmp_path / "run", resume=True, workers=1)
    study.write_text(study.read_text().replace("60%", "50%"))
    monkeypatch.setattr("codesign.workbench.sweep_inputs.program_version", lambda: "9+x")
    with pytest.raises(codesign.InputFileError, match=r"begun by version .* and this is 9\+x"):
        sweep(study, out=tmp_path / "run", resume=True, workers=1)


def test_a_fault_inside_one_scenario_is_its_row_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, study = with_trace_file(tmp_path)
    real = sweep_worker.policy

    def broken(spec: str) -> object:
        if spec == "fifo":
            raise RuntimeError("invariant broken: 1 ≠ 2")
        return real(spec)

    monkeypatch.setattr(sweep_worker, "policy", broken)
    rows = sweep(study, out=tmp_path / "run", workers=1).rows
    assert rows["status"].tolist() == ["ok", "failed"]
    assert rows["error"].tolist()[1] == "RuntimeError: invariant broken: 1 ≠ 2"


def test_ctrl_c_keeps_what_is_done_and_resume_finishes_it(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(done: int, total: int, pace: str) -> None:
        if done >= 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(whole / "study.toml", out=tmp_path / "run", workers=1, progress=stop)
    with pytest.raises(codesign.InputFileError, match="unfinished sweep"):
        load_sweep(tmp_path / "run")
    sweep(whole / "study.toml", out=tmp_path / "run", resume=True, workers=1)
    assert tables(tmp_path / "run") == tables(whole / "run")


def test_two_processes_leave_the_bytes_of_one(whole: Path, tmp_path: Path) -> None:
    before = dict(os.environ)
    sweep(whole / "study.toml", out=tmp_path / "run", workers=2)
    assert tables(tmp_path / "run") == tables(whole / "run")
    assert dict(os.environ) == before


def test_a_worker_that_is_killed_costs_no_row(whole: Path, tmp_path: Path) -> None:
    plan = load_study(whole / "study.toml")
    inputs = prepare_inputs(plan, whole, tmp_path)
    points = [inputs.resolved(point) for point in plan.scenarios()]
    tasks = [Task(str(number), point.model_dump()) for number, point in enumerate(points)]
    rows = []
    for found in run_in_processes(inputs, iter(tasks), 2):
        if not rows:
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            workers = [pid for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
            os.kill(int(workers[-1]), signal.SIGKILL)
        rows += found
    assert sorted(int(row["scenario"]) for row in rows) == list(range(len(tasks)))
    assert {row["status"] for row in rows if row["capacity"] != "2"} == {"ok"}


_RUN = "import sys; from codesign.workbench.sweep import sweep; sweep(sys.argv[1], out=sys.argv[2], resume=True, workers=1)"


def test_killed_at_random_moments_it_ends_with_the_same_table(whole: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    run = tmp_path / "run"
    command = [sys.executable, "-c", _RUN, str(whole / "study.toml"), str(run)]
    for _ in range(3):
        process = subprocess.Popen(command)
        time.sleep(float(rng.uniform(1.0, 2.5)))
        process.kill()
        process.wait()
    subprocess.run(command, check=True)
    assert tables(run) == tables(whole / "run")


def test_a_folder_that_is_no_sweep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(codesign.InputFileError, match=r"holds no run\.json"):
        load_sweep(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({"kind": "replay", "schema": 1}))
    with pytest.raises(codesign.InputFileError, match="is no sweep"):
        load_sweep(tmp_path)


def test_a_worker_count_below_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(codesign.UsageError, match="at least 1, got 0"):
        sweep(write_study(tmp_path), out=tmp_path / "run", workers=0)


def test_the_bounds_without_a_size_run_once_for_all_capacities(tmp_path: Path) -> None:
    study = write_study(
        tmp_path, AXES.replace('["lru", "least-stale", "belady-mandatory"]', '["never", "unbounded"]')
    )
    result = sweep(study, out=tmp_path / "run", workers=1)
    assert result.run["counts"]["scenarios"] == 8
    assert result.run["counts"]["duplicates"] == 16
    assert set(result.rows["capacity"]) == {"0", "100%"}
    assert sweep_module.load_sweep(tmp_path / "run").run == result.run
