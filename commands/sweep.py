"""`workbench sweep`, `best`, `pareto` and `compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .shared import Json, print_json, print_table, progress_bar

if TYPE_CHECKING:
    from ..workbench.compare import Answer

Run = Annotated[Path, typer.Argument(help="A folder that workbench sweep --out wrote.")]
Subject = Annotated[
    str | None, typer.Option(help="Conditions, a comma between them: capacity<=2GiB,policy!=static")
]


def sweep(
    study: Annotated[Path, typer.Argument(help="A study (.toml): docs/studies.md.")],
    out: Annotated[Path, typer.Option(help="The folder that keeps the journal and the tables.")],
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what the folder holds.")] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes. (default: one a core)")] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Run on the Dask scheduler at this address instead.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML page that works offline.")] = None,
    json: Json = False,
) -> None:
    """Run every scenario of a study once: policies × prefetchers × capacities × links × traces, resumable."""
    from ..workbench.sweep import sweep as run

    with progress_bar() as progress:
        try:
            result = run(study, out=out, resume=resume, workers=workers, cluster=cluster, progress=progress)
        except KeyboardInterrupt:
            typer.echo(
                f"workbench: stopped; what is done is kept, and --resume --out {out} goes on", err=True
            )
            raise
    written = {"rows": str(result.folder / "rows.parquet")}
    if report is not None:
        from ..reports.sweep import sweep_report

        written["report"] = str(sweep_report(result, report))
    if json:
        print_json({"counts": result.run["counts"], "seconds": result.seconds, **written})
        return
    print(result.sentence())
    for error, count in result.run["counts"]["errors"].items():
        typer.echo(f"note: {count} scenarios failed: {error}", err=True)
    for kind, path in written.items():
        print(f"{kind}: {path}")


def best(
    run: Run,
    objective: Annotated[
        str, typer.Option(help="What is to be small: tpot, ttft, bytes, …; hit_rate is to be large.")
    ] = "tpot",
    subject: Subject = None,
    top: Annotated[int, typer.Option(min=1, help="How many choices to show of each setting.")] = 5,
    json: Json = False,
) -> None:
    """The best choices of a sweep, with intervals, and which of them are ties."""
    from ..workbench.compare import best as ask

    _tell(ask(run, objective=objective, subject=subject, top=top), json)


def pareto(
    run: Run,
    x: Annotated[
        str, typer.Option("--x", help="One measure: capacity_bytes, tpot, traffic, …")
    ] = "capacity_bytes",
    y: Annotated[str, typer.Option("--y", help="The other one.")] = "tpot",
    subject: Subject = None,
    json: Json = False,
) -> None:
    """The choices that no other one beats in both of two measures."""
    from ..workbench.compare import pareto as ask

    _tell(ask(run, x=x, y=y, subject=subject), json)


def compare(
    run_a: Run,
    run_b: Annotated[Path, typer.Argument(help="Another one; scenarios are matched by their configuration.")],
    objective: Annotated[str, typer.Option(help="By what to compare.")] = "tpot",
    subject: Subject = None,
    json: Json = False,
) -> None:
    """Two sweeps side by side: what became better, what worse, and what nobody can tell apart."""
    from ..workbench.compare import compare as ask

    _tell(ask(run_a, run_b, objective=objective, subject=subject), json)


def _tell(answer: Answer, json: bool) -> None:
    if json:
        print_json(answer.to_dict())
        return
    from ..workbench.sweep_text import readable

    rows: list[dict[Any, str]] = readable(answer.rows)
    if rows:
        print_table(rows)
    for sentence in answer.sentences:
        print(sentence)


COMMANDS = (
    (sweep, "workbench sweep studies/first.toml --out runs/first --workers 1"),
    (best, "workbench best runs/first --objective tpot"),
    (pareto, "workbench pareto runs/first --x capacity_bytes --y tpot"),
    (compare, "workbench compare runs/first runs/first"),
)
