"""0 fine, 1 the run failed, 2 the request is wrong, 130 interrupted; a user's mistake is never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from codesign.workbench import replay as replay_study
from command_line import small_trace_file, workbench, workbench_process

TRACE = object()  # stands for a good trace file in the lists below


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_trace_file(tmp_path_factory.mktemp("trace"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("reply",), "No such command"),
        (("replay",), "Missing argument"),
        (("replay", TRACE, "--polcy", "lru"), "No such option"),
        (("replay", TRACE, "--batch", "0"), "--batch"),
        (("replay", TRACE, "--batch", "many"), "--batch"),
        (("replay", TRACE, "--seed", "-1"), "--seed"),
        (("trace",), "Usage"),
        (("trace", "synth", "new.safetensors", "--tokens", "0"), "--tokens"),
    ],
)
def test_what_cannot_be_parsed_exits_with_2_and_names_it(
    arguments: tuple[object, ...], said: str, trace: Path
) -> None:
    code, out, err = workbench(*(trace if argument is TRACE else argument for argument in arguments))
    assert code == 2
    assert said in out + err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("replay", "missing.safetensors"), "missing.safetensors: no such file"),
        (("replay", "."), "is a directory"),
        (("replay", TRACE, "--policy", "leest-stale"), "did you mean 'least-stale'?"),
        (("replay", TRACE, "--policy", "lru,,lfu"), "--policy 'lru,,lfu' has an empty item"),
        (("replay", TRACE, "--policy", "lru,lru"), "'lru' is given twice"),
        (("replay", TRACE, "--prefetch", "gates"), "did you mean 'gate'?"),
        (("replay", TRACE, "--prefetch", "gate:ahead=0"), "gate:ahead"),
        (("replay", TRACE, "--capacity", "five"), "capacity 'five' is not understood"),
        (("replay", TRACE, "--capacity", "2G"), "unknown unit 'G'"),
        (("replay", TRACE, "--capacity", "0"), "top-k"),
        (("replay", TRACE, "--capacity", "1"), "2"),
        (("replay", TRACE, "--capacity", "2GiB"), "give --model"),
        (("replay", TRACE, "--capacity", "auto"), "give --model and --hardware"),
        (("replay", TRACE, "--hardware", "h200-sxm"), "give --model"),
        (("replay", TRACE, "--model", "olmo-1b-7b"), "olmoe-1b-7b"),
        (("replay", TRACE, "--model", "olmoe-1b-7b"), "choose the model that the trace was recorded from"),
        (("replay", TRACE, "--contract", "slot"), "did you mean 'slots'?"),
        (("replay", TRACE, "--scope", "layers"), "did you mean 'layer'?"),
        (("replay", TRACE, "--engine", "fast"), "numba, simpy"),
        (("replay", TRACE, "--timeline", "steps.json"), "--timeline needs times"),
        (("replay", TRACE, "--prefetch-budget", "64"), "--prefetch-budget must be bytes with their unit"),
        (("replay", TRACE, "--format", "jsonlines"), "did you mean 'jsonl'?"),
        (("replay", "missing.toml"), "missing.toml"),
        (("replay", "missing.toml", "--policy", "lru"), "say it in the file instead"),
        (("report", "nowhere"), "nowhere: no such directory"),
        (("report", "."), "run.json"),
        (("trace", "info", "missing.csv"), "missing.csv: no such file"),
        (("trace", "convert", TRACE, "new.safetensors", "--permute", "tokens"), "known: steps"),
        (("trace", "synth", "new.safetensors", "--layers", "2"), "needs a model"),
        (("trace", "synth", "new.safetensors", "--model", "llama-3.1-8b"), "no mixture-of-experts layers"),
        (("model", "show", "olmoe"), "did you mean"),
        (("hardware", "show", "h20"), "did you mean"),
    ],
)
def test_a_wrong_request_exits_with_2_and_one_line_that_says_what_would_be_right(
    arguments: tuple[object, ...], said: str, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = workbench(*(trace if argument is TRACE else argument for argument in arguments))
    assert (code, out) == (2, "")
    assert said in err
    assert err.startswith("workbench: ")
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir()), "nothing is written"


def test_a_result_that_cannot_be_written_exits_with_1(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    code, _, err = workbench("replay", trace, "--capacity", "20%", "--out", tmp_path / "file" / "run")
    assert code == 1
    assert "workbench: cannot write" in err
    assert "file" in err


def test_an_interrupted_run_exits_with_130(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(replay_study, "replay", interrupted)
    assert workbench("replay", trace).code == 130


def test_a_fault_of_our_own_is_not_hidden(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("hits + misses = accesses, but 3 ≠ 4")

    monkeypatch.setattr(replay_study, "replay", broken)
    with pytest.raises(RuntimeError, match="3 ≠ 4"):
        workbench("replay", trace)


@pytest.mark.parametrize("name", ["a trace.safetensors", "Spür – 痕跡.safetensors", "-.bin", "[bold]x.bin"])
def test_any_file_name_is_fine(name: str, tmp_path: Path) -> None:
    path = small_trace_file(tmp_path, name)
    assert workbench("trace", "info", path).code == 0
    code, out, _ = workbench("trace", "convert", path, tmp_path / f"to {name}")
    assert code == 0
    assert name in out


def test_a_terminal_without_utf_8_gets_escapes_instead_of_a_traceback(trace: Path) -> None:
    answer = workbench_process("replay", trace, "--capacity", "25%", environment={"PYTHONIOENCODING": "ascii"})
    assert answer.code == 0
    assert "\\u2013" in answer.out  # the dash that stands for "none"


def test_a_reader_that_stops_reading_gets_no_traceback(trace: Path) -> None:
    script = Path(sys.executable).parent / "workbench"
    done = subprocess.run(
        ["bash", "-c", f"'{script}' model list | true"], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_the_installed_command_exits_with_the_same_codes(trace: Path, tmp_path: Path) -> None:
    code, out, err = workbench_process("replay", "missing.safetensors", cwd=tmp_path)
    assert (code, out, err) == (2, "", "workbench: missing.safetensors: no such file\n")
    assert workbench_process("--version").code == 0
    assert workbench_process("trace", "info", trace).code == 0
