"""`workbench validate` and `export` as commands: what they refuse, what they print, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from codesign.commands import validate as commands
from codesign.errors import UsageError


def run(*arguments: str) -> int:
    """The exit code of the two commands by themselves; errors of the workbench come through."""
    app = typer.Typer()
    for command, _ in commands.COMMANDS:
        app.command()(command)
    try:
        app(list(arguments), standalone_mode=False)
    except typer.Exit as left:
        return left.exit_code
    return 0


def scenario(folder: Path) -> Path:
    path = folder / "s.toml"
    path.write_text('trace = "t"\nmodel = "olmoe-1b-7b"\npolicies = ["lru"]\ncapacities = ["50%"]\n')
    return path


def test_exactly_one_thing_is_validated() -> None:
    for arguments in ([], ["x.toml", "--suite"], ["--suite", "--hf", "config.json"]):
        with pytest.raises(UsageError, match="takes one of"):
            run("validate", *arguments)


@pytest.mark.parametrize(("text", "value"), [("10%", 0.1), ("0.1", 0.1), ("250%", 2.5)])
def test_a_threshold_is_a_share(text: str, value: float) -> None:
    assert commands.share(text) == pytest.approx(value)


def test_a_threshold_that_is_no_number_is_refused() -> None:
    with pytest.raises(UsageError, match="--within is a share such as 10%"):
        commands.share("a bit")


def test_export_prints_the_command_for_people_and_one_document_for_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(scenario(tmp_path))
    assert run("export", path, "--to", "llama.cpp") == 0
    assert capsys.readouterr().out.startswith("llama-server ")
    assert run("export", path, "--to", "vllm", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["command"][:2] == ["vllm", "serve"]
    assert found["cannot_express"]


def test_a_wrong_model_type_of_hugging_face_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "bert"}')
    with pytest.raises(UsageError, match="'bert' is none of mixtral, olmoe, qwen3_moe"):
        run("validate", "--hf", str(path))


@pytest.mark.slow
def test_a_short_validation_prints_one_document_with_equal_ledgers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = run(
        "validate", "traces/data/small-olmoe-stdlib.safetensors", "--model", "small-olmoe-stdlib", "--tokens", "8",
        "--policy", "lru", "--tier", "host", "--within", "900%", "--json",
    )  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    assert code == 0
    assert found["summary"]["ledgers_equal"] is True
    assert found["scenarios"][0]["repeats"] == 7
