"""`workbench sweep`, `best`, `pareto` and `compare` as typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import workbench
from small_studies import write_study

AXES = 'policy = ["lru", "fifo"]\ncapacity = ["10%", "50%"]\n'


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("swept")
    code, out, _ = workbench(
        "sweep", str(write_study(folder, AXES)), "--out", str(folder / "run"), "--workers", "1", "--json"
    )
    assert code == 0
    assert json.loads(out)["counts"] == {"scenarios": 4, "failed": 0, "duplicates": 0, "errors": {}}
    return str(folder / "run")


def test_best_names_a_policy_and_how_sure_that_is(run: str) -> None:
    code, out, _ = workbench("best", run, "--objective", "tpot", "--subject", "capacity<=10%", "--json")
    assert code == 0
    document = json.loads(out)
    assert [row["rank"] for row in document["rows"]] == [1, 2]
    assert document["rows"][0]["tpot_s_low"] < document["rows"][0]["tpot_s_high"]
    assert workbench("best", run)[0] == 0


def test_pareto_and_compare_answer(run: str) -> None:
    code, out, _ = workbench("pareto", run, "--x", "capacity_bytes", "--y", "tpot", "--json")
    assert code == 0
    assert len(json.loads(out)["rows"]) == 2
    code, out, _ = workbench("compare", run, run)
    assert code == 0
    assert "Of 4 scenarios in both runs A is: 4 tie" in out


def test_a_second_run_into_the_same_folder_is_refused_and_resume_goes_on(run: str, tmp_path: Path) -> None:
    study = str(Path(run).parent / "study.toml")
    code, _, err = workbench("sweep", study, "--out", run)
    assert code == 2
    assert "--resume" in err
    code, out, _ = workbench(
        "sweep", study, "--out", run, "--resume", "--workers", "1", "--report", str(tmp_path / "r.html")
    )
    assert code == 0
    assert "4 scenarios" in out
    assert (tmp_path / "r.html").stat().st_size > 1_000_000


def test_an_unknown_key_is_one_line_with_the_nearest_known_one(tmp_path: Path) -> None:
    study = write_study(tmp_path, AXES.replace("policy", "polcy"))
    code, _, err = workbench("sweep", str(study), "--out", str(tmp_path / "run"))
    assert code == 2
    assert "did you mean 'policy'?" in err
    assert not (tmp_path / "run").exists()


def test_a_cluster_that_is_not_there_is_an_error_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
    monkeypatch.setattr("codesign.workbench.executors_dask._PATIENCE_S", 1)
    code, _, err = workbench(
        "sweep",
        str(write_study(tmp_path, AXES)),
        "--out",
        str(tmp_path / "run"),
        "--cluster",
        "tcp://127.0.0.1:9",
    )
    assert code == 1
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in err
