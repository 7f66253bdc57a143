"""What all commands share: options, the progress bar, and how things are printed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from ..errors import UsageError

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on one line instead of a table.")]
Seed = Annotated[int, typer.Option(min=0, help="Everything random comes from this number.")]
Format = Annotated[str | None, typer.Option(help="Name the file's format instead of finding it from its content.")]
Experts = Annotated[int | None, typer.Option(min=1, help="Routed experts a layer, where the file does not say.")]
Lenient = Annotated[bool, typer.Option("--lenient", help="Skip unreadable rows, and say how many.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A known name, or the path of a file.")]


def listed(option: str, text: str) -> list[str]:
    """The items of a comma list. Raises `UsageError` for an empty one."""
    items = [item.strip() for item in text.split(",")]
    if not all(items):
        raise UsageError(f"{option} {text!r} has an empty item")
    return items


@contextmanager
def progress_bar() -> Iterator[Callable[[int, int, str], None]]:
    """A bar with the time left on standard error; silent where that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading", total=None)
        yield lambda done, total, label: bar.update(task, completed=done, total=total or None, description=label)


def show(document: dict[str, Any], lines: Sequence[str], json: bool) -> None:
    if json:
        print_json(document)
    else:
        print("\n".join(lines))


def warn(warnings: Sequence[str]) -> None:
    for warning in warnings:
        print(f"note: {warning}", file=sys.stderr)


def print_json(document: dict[str, Any]) -> None:
    from json import dumps

    print(dumps(document, ensure_ascii=False, allow_nan=False))


def print_table(rows: Sequence[Mapping[Any, str]]) -> None:
    """Rows of text, numbers to the right; never narrower than its content, so that nothing is cut."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(rows[0]):
        drawn.add_column(Text(str(name)), justify="left" if index < 2 else "right", no_wrap=True)
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row.values()))
    console = Console(highlight=False)
    needed = console.measure(drawn, options=console.options.update(width=1_000)).maximum
    console.width = max(console.width, needed)
    console.print(drawn)
