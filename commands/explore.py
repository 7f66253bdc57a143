"""`workbench explore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .shared import Json, print_json, print_table, progress_bar


def explore(
    study: Annotated[Path, typer.Argument(help="A study of designs (.toml): docs/explore.md.")],
    out: Annotated[Path | None, typer.Option(help="The folder that keeps the tables.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what the folder holds.")] = False,
    train: Annotated[
        bool, typer.Option("--train", help="Train the small models of [train] instead, into --out.")
    ] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes of --train. (default: one a core)")] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML page that works offline.")] = None,
    json: Json = False,
) -> None:
    """Which shape of a mixture is best on a machine: designs × operating points, costed, with the front and its knee."""
    from ..workbench.explore import explore as run
    from ..workbench.explore_lines import FEW, lines, part_rows, table_rows

    if train:
        _train(study, out, resume, workers, report, json)
        return
    with progress_bar() as progress:
        try:
            result = run(study, out=out, resume=resume, progress=progress)
        except KeyboardInterrupt:
            if out is not None:
                typer.echo(f"workbench: stopped; what is done is kept, and --resume --out {out} goes on", err=True)
            raise
    written = {} if out is None else {"designs": str(out / "designs.parquet")}
    if report is not None:
        from ..reports.explore import explore_report

        written["report"] = str(explore_report(result, report))
    if json:
        print_json({**result.to_dict(), **written})
        return
    for machine in result.costs:
        print(machine)
        if result.fronts[machine] is not None:
            print_table(table_rows(result, machine))
        for point in result.study.points if len(result.designs) <= FEW else ():
            print(f"{machine}, {point.name}: {point.text()}")
            print_table(part_rows(result, machine, point.name))
    for line in lines(result):
        print(line)
    for warning in result.warnings:
        typer.echo(f"note: {warning}", err=True)
    for kind, path in written.items():
        print(f"{kind}: {path}")


def _train(
    study: Path, out: Path | None, resume: bool, workers: int | None, report: Path | None, json: bool
) -> None:
    from ..errors import UsageError
    from ..workbench.explore import explore_train

    if out is None:
        raise UsageError("--train takes a while and needs --out DIR, which keeps what is done")
    if report is not None:
        raise UsageError("--train writes no report: its table and sentences say it all")
    with progress_bar() as progress:
        try:
            trained = explore_train(study, out=out, resume=resume, workers=workers, progress=progress)
        except KeyboardInterrupt:
            typer.echo(f"workbench: stopped; what is done is kept, and --resume --out {out} goes on", err=True)
            raise
    if json:
        print_json(trained.to_dict())
        return
    from ..workbench.explore_lines import trained_rows

    print_table(trained_rows(trained))
    for comparison in trained.comparisons:
        print(comparison.sentence())
    for note in trained.notes:
        typer.echo(f"note: {note}", err=True)
    print(f"run: {out}")


COMMANDS = ((explore, "workbench explore studies/designs.toml"),)
