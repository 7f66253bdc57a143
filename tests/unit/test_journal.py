"""The journal: whatever a kill leaves, what was whole is kept and what was torn is gone; damage is no kill."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import codesign
import pytest
from codesign.workbench.journal import Contents, Journal, read_journal, rows_at

HEADER = {"kind": "sweep", "study": "s"}
ROWS = [{"scenario": f"{n:032x}", "hit_rate": n / 7, "error": "é\n" * (n % 3)} for n in range(5)]


def write(path: Path, rows: list[dict[str, object]], contents: Contents | None = None) -> Contents:
    contents = contents or read_journal(path)
    with Journal(path, HEADER, contents) as journal:
        for row in rows:
            journal.append([row])
    return contents


def stored(path: Path) -> list[dict[str, object]]:
    found = read_journal(path)
    return list(rows_at(path, list(found.places.values())))


def test_what_was_appended_is_read_back_to_the_last_bit(tmp_path: Path) -> None:
    write(tmp_path / "j", ROWS)
    assert stored(tmp_path / "j") == ROWS
    assert read_journal(tmp_path / "j").header == HEADER


def test_cut_at_any_byte_it_keeps_whole_rows_and_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    write(tmp_path / "whole", ROWS)
    whole = (tmp_path / "whole").read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in range(len(whole) + 1):
        torn = tmp_path / "torn"
        torn.write_bytes(whole[:cut])
        kept = read_journal(torn)
        ends = [sum(map(len, lines[: count + 1])) for count in range(len(lines))]
        expected = sum(end <= cut for end in ends)
        assert len(kept.places) + (kept.header is not None) == expected
        write(torn, ROWS, kept)
        assert torn.read_bytes() == whole


def test_a_row_that_is_there_is_not_written_twice(tmp_path: Path) -> None:
    write(tmp_path / "j", [*ROWS, *ROWS])
    write(tmp_path / "j", ROWS)
    assert stored(tmp_path / "j") == ROWS


def test_damage_before_whole_lines_is_refused_with_its_line(tmp_path: Path) -> None:
    write(tmp_path / "j", ROWS)
    data = bytearray((tmp_path / "j").read_bytes())
    data[data.index(b"\n") + 20] ^= 1
    (tmp_path / "j").write_bytes(data)
    with pytest.raises(codesign.InputFileError, match="line 2: is damaged"):
        read_journal(tmp_path / "j")


def test_a_disk_that_fills_ends_the_run_and_keeps_what_was_whole(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write(path, ROWS[:2])
    contents = read_journal(path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with Journal(path, HEADER, contents) as journal:
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 30, before[1]))
            with pytest.raises(codesign.RunError, match="2 scenarios are kept, and --resume goes on"):
                journal.append(ROWS[2:3])
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            journal.append(ROWS[2:])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert stored(path) == ROWS
