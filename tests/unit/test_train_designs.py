"""Sets of trained designs: resumed after any end they give the same losses, and verdicts need evidence."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny_training
from codesign.errors import InputFileError, UsageError
from codesign.workbench.journal import read_journal, rows_at
from codesign.workbench.train_result import (
    DesignComparison,
    TrainedDesigns,
    load_trained_designs,
    student_interval,
)
from tiny_training import RECIPE, SEEDS, TOKENS, tiny_corpus, tiny_designs, train_tiny


def stored(folder: Path) -> dict[str, dict[str, Any]]:
    """Rows by hash, without what depends on the clock."""
    places = read_journal(folder / "journal.jsonl").places
    rows = rows_at(folder / "journal.jsonl", list(places.values()))
    return {row.pop("scenario"): {k: v for k, v in row.items() if k != "seconds"} for row in rows}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> TrainedDesigns:
    """An uninterrupted set."""
    return train_tiny(tmp_path_factory.mktemp("whole") / "set")


def test_a_set_gives_losses_with_intervals_and_a_comparison_with_the_base(whole: TrainedDesigns) -> None:
    standard, latent = whole["standard"], whole["latent-2"]
    assert set(standard.losses) == set(latent.losses) == set(SEEDS)
    assert standard.loss.low < standard.loss.mean < standard.loss.high  # type: ignore[operator]
    assert standard.total_params == tiny_designs()["standard"].total_params
    assert standard.tokens_per_s is not None
    (compared,) = whole.comparisons
    assert compared.base == whole.base == "standard"
    assert compared.differences == {seed: latent.losses[seed] - standard.losses[seed] for seed in SEEDS}
    assert compared.flops_ratio == pytest.approx(1.0, abs=0.02)
    assert compared.verdict == "untested"
    assert "untested with 2 seeds" in whole.sentence()
    assert whole.ran == 4
    assert not (whole.folder / "checkpoints").exists()


def test_what_was_written_is_read_back(whole: TrainedDesigns) -> None:
    back = load_trained_designs(whole.folder)
    assert back.designs == whole.designs
    assert back.to_dict() == whole.to_dict()
    assert list(back.table["design"]) == ["standard", "latent-2"]
    assert "NaN" not in (whole.folder / "run.json").read_text()


def test_a_finished_set_runs_nothing_again_and_takes_more_seeds(
    whole: TrainedDesigns, tmp_path: Path
) -> None:
    copied = tmp_path / "copy"
    copied.mkdir()
    (copied / "journal.jsonl").write_bytes((whole.folder / "journal.jsonl").read_bytes())
    told: list[tuple[int, int, str]] = []
    again = train_tiny(copied, resume=True, progress=lambda *now: told.append(now))
    assert again.ran == 0
    assert again.designs == whole.designs
    assert told[-1][:2] == (4 * TOKENS, 4 * TOKENS)
    more = train_tiny(copied, resume=True, seeds=(0, 1, 2))
    assert more.ran == 2
    assert more.comparisons[0].verdict != "untested"
    assert {seed: more["standard"].losses[seed] for seed in SEEDS} == whole["standard"].losses


def started(out: Path) -> subprocess.Popen[bytes]:
    script = Path(tiny_training.__file__)
    process = subprocess.Popen([sys.executable, str(script), str(out)], start_new_session=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        journal = out / "journal.jsonl"
        if journal.exists() and len(read_journal(journal).places) >= 1 and list(out.glob("checkpoints/*.pt")):
            return process
        time.sleep(0.005)
    process.kill()
    pytest.fail("the set ended before it could be interrupted")


def test_killed_while_it_trains_and_resumed_it_gives_the_same_rows(
    whole: TrainedDesigns, tmp_path: Path
) -> None:
    out = tmp_path / "set"
    process = started(out)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(1.0)  # workers see that their parent is gone within half a second
    assert 1 <= len(stored(out)) < 4
    with (out / "journal.jsonl").open("ab") as journal:
        journal.write(b"deadbeef {torn")
    resumed = train_tiny(out, resume=True)
    assert 0 < resumed.ran < 4
    assert stored(out) == stored(whole.folder)


def test_interrupted_it_saves_its_state_and_says_that_it_is_unfinished(
    whole: TrainedDesigns, tmp_path: Path
) -> None:
    out = tmp_path / "set"
    process = started(out)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(timeout=30) not in (0, None)
    with pytest.raises(InputFileError, match="unfinished"):
        load_trained_designs(out)
    train_tiny(out, resume=True)
    assert stored(out) == stored(whole.folder)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tokens": 2 * TOKENS}, "tokens: 5120 there, 10240 now"),
        ({"recipe": replace(RECIPE, learning_rate=2e-2)}, "recipe learning_rate: 0.01 there, 0.02 now"),
        ({"corpus": tiny_corpus(1)}, "corpus sha256: "),
        ({"designs": {"standard": tiny_designs()["latent-2"]}}, "design 'standard' has another shape"),
    ],
)
def test_changed_inputs_are_refused_with_what_changed(
    whole: TrainedDesigns, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UsageError, match=f"cannot be resumed: .*{reason}"):
        train_tiny(whole.folder, resume=True, **changes)
    assert load_trained_designs(whole.folder).designs == whole.designs


def test_what_cannot_be_is_refused_before_anything_runs(whole: TrainedDesigns, tmp_path: Path) -> None:
    wide = replace(tiny_designs()["standard"], vocab=300)
    for given, message in (
        ({"designs": {"mine": wide}}, "design 'mine': model standard: its vocabulary is 300"),
        ({"seeds": ()}, "no seed"),
        ({"seeds": (1, 1)}, "seeds must differ"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"tokens": 0}, "tokens must be at least 1"),
        ({"base": "latent-3"}, "did you mean 'latent-2'"),
    ):
        with pytest.raises(UsageError, match=message):
            train_tiny(tmp_path / "none", **given)
    assert not (tmp_path / "none").exists()
    with pytest.raises(UsageError, match="holds trained designs already: --resume"):
        train_tiny(whole.folder)


def test_an_interval_of_three_values_by_hand() -> None:
    # mean 2, deviation 1, t of 2 degrees 4.303: 2 ± 4.303 / √3
    found = student_interval([1.0, 2.0, 3.0])
    assert (found.low, found.mean, found.high) == pytest.approx((-0.4841, 2.0, 4.4841), abs=1e-4)
    assert student_interval([1.0]).low is None
    assert student_interval([]).mean is None


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ((-0.010, -0.012, -0.011), "beats"),
        ((0.010, 0.012, 0.011), "loses"),
        ((-0.010, 0.012, -0.011), "no difference shown"),
        ((-0.010, -0.012), "untested"),
        ((), "untested"),
    ],
)
def test_a_verdict_needs_three_seeds_and_an_interval_without_zero(
    differences: tuple[float, ...], verdict: str
) -> None:
    found = DesignComparison("mine", "base", dict(enumerate(differences)), 1.0)
    assert found.verdict == verdict
    assert (verdict if differences else "no seed has both") in found.sentence()
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_design_of_another_cost_and_one_without_losses_are_told_of(whole: TrainedDesigns) -> None:
    latent = replace(
        whole["latent-2"], flops_per_token=2 * whole["latent-2"].flops_per_token, losses={}, errors={0: "why"}
    )
    notes = " ".join(replace(whole, designs=(whole["standard"], latent)).notes)
    assert "not the same active cost" in notes
    assert "latent-2, seed 0, has no loss: why" in notes
    assert "fewer than 3 seeds" in notes
    assert "loss" not in latent.to_dict()
