"""What the documents say to type, typed; every command and option stands in them; every example in help runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from command_line import all_commands, workbench

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/cli.md", "docs/explore.md", "docs/latentmoe.md")
COMMANDS = all_commands()
_PLACEHOLDER = "path/to/"  # something only the reader has
_RAN: set[str] = set()  # commands of the pages, so that the same example in a command's help need not run again


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def shell_commands(page: str) -> list[str]:
    """The lines that begin with `workbench`, continued lines joined."""
    joined = [line for block in blocks(page, "sh") for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in joined if line.startswith("workbench ")]


@pytest.fixture
def in_a_copy_of_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder where the bundled traces are found as in the root, and where what is written does no harm."""
    for name in ("traces", "studies"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(command: str) -> None:
    code, out, err = workbench(*shlex.split(command, comments=True)[1:])
    if _PLACEHOLDER in command:
        assert code == 2, f"{command}: {err}"
        assert _PLACEHOLDER in err
    else:
        assert code == 0, f"{command}: {err}"
        assert out.strip()


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run_from_top_to_bottom(page: str, in_a_copy_of_the_root: Path) -> None:
    commands = shell_commands(page)
    assert commands
    for command in commands:
        check(command)
        _RAN.add(command)


def test_the_python_of_the_readme_runs(in_a_copy_of_the_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    programs = blocks("README.md", "python")
    assert programs
    for program in programs:
        exec(compile(program, "README.md", "exec"), {})
    assert "hit rate" in capsys.readouterr().out
    assert (in_a_copy_of_the_root / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_example_in_a_commands_help_runs(words: tuple[str, ...], in_a_copy_of_the_root: Path) -> None:
    example = COMMANDS[words].epilog.removeprefix("Example: ")
    if example in _RAN:
        return
    if words == ("report",):
        workbench("replay", "traces/data/small-olmoe-stdlib.safetensors", "--capacity", "25%", "--out", "runs/demo")
    if words in (("best",), ("pareto",), ("compare",)):
        check("workbench sweep studies/first.toml --out runs/first --workers 1")
    if words == ("export",):
        check("workbench init scenario.toml")
    if words == ("trace", "convert"):
        line = '{"sequence": 0, "token": %d, "layer": 0, "topk_ids": [%d, 3]}\n'
        meta = '{"type": "meta", "model": "m", "num_experts": 4, "top_k": 2, "num_layers": 1}\n'
        Path("routing.jsonl").write_text(meta + "".join(line % (token, token % 3) for token in range(6)))
    check(example)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_and_option_is_documented(words: tuple[str, ...]) -> None:
    text = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    assert f"\n## workbench {' '.join(words)}\n" in text
    section = text.split(f"\n## workbench {' '.join(words)}\n")[1].split("\n## ")[0]
    for parameter in COMMANDS[words].params:
        names = [name for name in parameter.opts if name.startswith("--")]
        if names and names[0] not in ("--help", "--json", "--format", "--num-experts", "--lenient", "--seed"):
            assert f"`{names[0]}" in section or f"{names[0]} " in section, f"{names[0]} is not documented"
    for general in ("--json", "--format", "--num-experts", "--lenient", "--seed"):
        assert f"`{general}" in text


def test_links_between_pages_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
