"""`workbench calibrate` and `workbench profile …`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from .shared import Json, Name, Seed, print_json, print_table, progress_bar, show

app = typer.Typer(help="Profiles: measured kernels as cost laws with error bands.", no_args_is_help=True)
System = Annotated[str | None, typer.Option(help="A system of the published tables, such as h200_sxm.")]


def calibrate(
    out: Annotated[Path, typer.Option(help="Folder for journal, tables and profile.")],
    device: Annotated[str, typer.Option(help="What to measure: cpu, or a GPU as cuda:N.")] = "cpu",
    suite: Annotated[str, typer.Option(help="quick (under 2 minutes) or full.")] = "quick",
    source: Annotated[str | None, typer.Option("--from", help="aiconfigurator: fit published tables instead.")] = None,
    system: System = None,
    framework: Annotated[str | None, typer.Option(help="Of the published tables: vllm, sglang or trtllm.")] = None,
    operations: Annotated[str | None, typer.Option(help="Only these, a comma between them.")] = None,
    budget_s: Annotated[float | None, typer.Option(min=1.0, help="Seconds to measure. (default: by suite)")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Of the processor, to measure with. (default: all cores)")] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML page that works offline.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew, whatever the journal holds.")] = False,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Measure the kernels of this machine's processor or GPU, or fit published ones, into a profile that knows its error.

    Interrupted, it keeps what was measured; the same command goes on.
    """
    if source is not None:
        if report is not None:
            raise UsageError("published tables are judged by workbench profile check: give --report there")
        _from_tables(source, system, framework, out, seed, json)
        return
    if system is not None or framework is not None:
        raise UsageError("--system and --framework choose among published tables: add --from aiconfigurator")
    from ..workbench.calibrate import calibrate as run
    from ..workbench.profile_lines import calibration_facts

    with progress_bar() as progress:
        result = run(
            out=out, device=device, suite=suite, operations=() if operations is None else tuple(operations.split(",")),
            threads=threads, budget_s=budget_s, resume=not fresh, seed=seed,
            progress=lambda done, total, left_s, what: progress(done, total, f"{what}, {left_s:.0f} s left"),
        )  # fmt: skip
    lines = [*result.lines(), f"profile: {result.profile}"]
    if report is not None:
        from ..reports.calibration import calibration_report

        lines.append(f"report: {calibration_report(out, report)}")
    show(calibration_facts(result), lines, json)


def _from_tables(source: str, system: str | None, framework: str | None, out: Path, seed: int, json: bool) -> None:
    if source != "aiconfigurator":
        raise UsageError(f"--from {source!r}: known: aiconfigurator")
    if system is None:
        raise UsageError("--from aiconfigurator needs --system, such as h200_sxm")
    from ..workbench.profiles import calibrate_from_tables

    with progress_bar() as progress:
        header, facts = calibrate_from_tables(
            system, out=out, framework=framework, seed=seed, progress=lambda what: progress(0, 0, what)
        )
    lines = [
        f"{one['operation']}: {one['rows']:,} measured points of {one['shapes']:,} shapes, law {one['law']}"
        + "".join(f"; {count:,} left out: {why}" for why, count in facts["left_out"].get(one["operation"], {}).items())
        for one in facts["operations"]
    ]
    show({"profile": str(header), **facts}, [*lines, f"profile: {header}"], json)


@app.command("list", epilog="Example: workbench profile list")
def list_profiles(json: Json = False) -> None:
    """The profiles that ship with the program."""
    from ..sim.catalog import profile_names
    from ..workbench.profiles import load_named_profile, profile_facts, profile_rows

    if json:
        print_json({"profiles": [{"name": n, **profile_facts(load_named_profile(n))} for n in profile_names()]})
    else:
        print_table(profile_rows())


@app.command("show", epilog="Example: workbench profile show h200-sxm-sglang")
def show_profile(name: Name, json: Json = False) -> None:
    """What a profile holds: operations, shapes, laws, the error inside its own data, sources and licences."""
    from ..workbench.profiles import load_named_profile, profile_facts

    facts = profile_facts(load_named_profile(name))
    lines = [f"measured on {facts['system']}"]
    for one in facts["operations"]:
        errors = ", ".join(f"{law} {100 * value:.1f} %" for law, value in one["inner_error"].items())
        lines.append(f"{one['operation']}: {one['rows']:,} points of {one['shapes']:,} shapes; law {one['law']}")
        lines.append(f"    score of each law on shapes kept aside: {errors or 'not compared'}")
        lines.append(f"    source: {one['source']}, licence {one['licence']}")
    show(facts, lines, json)


@app.command("check", epilog="Example: workbench profile check --system a100_sxm --operations attention_prefill")
def check(
    system: Annotated[str, typer.Option(help="A system of the published tables, such as h200_sxm.")],
    operations: Annotated[str | None, typer.Option(help="Only these, a comma between them.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML page too; fits a second time.")] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Hold whole shapes out of the published tables, predict them from the rest, and print how far off that is."""
    from ..workbench.profile_check import profile_check
    from ..workbench.profile_lines import check_lines

    chosen = None if operations is None else operations.split(",")
    with progress_bar() as progress:
        rows = profile_check(system, chosen, seed=seed, progress=lambda what: progress(0, 0, what))
        lines = check_lines(rows)
        if report is not None:
            from ..reports.calibration import calibration_report
            from ..workbench.calibration_published import published_points

            points = published_points(system, chosen, seed=seed, progress=lambda what: progress(0, 0, what))
            lines.append(f"report: {calibration_report(points, report)}")
    show({"system": system, "operations": [row.to_dict() for row in rows]}, lines, json)


@app.command("mixtures", epilog="Example: workbench profile mixtures --system h200_sxm")
def mixtures(
    system: Annotated[str, typer.Option(help="A system of the published tables, such as h200_sxm.")],
    json: Json = False,
) -> None:
    """Measured experts of latent and standard mixtures side by side: time of one layer a token, and over its floor."""
    from ..workbench.profile_check import latent_against_standard
    from ..workbench.profile_lines import mixture_rows

    rows = latent_against_standard(system)
    if json:
        print_json({"system": system, "rows": rows})
        return
    print_table(mixture_rows(rows))
    print("Routed experts of one layer on one device, even loads, the fastest framework's: µs a token (times its floor).")


@app.command("compare", epilog="Example: workbench profile compare h200-sxm-sglang b200-sglang")
def compare(first: Name, second: Name, json: Json = False) -> None:
    """How much slower the second is than the first, over the points that both measured."""
    from dataclasses import asdict

    from ..workbench.profiles import compare_profiles

    rows = compare_profiles(first, second)
    lines = [
        f"{row.operation}: second ÷ first {row.median_ratio:.3g} median, {row.p10_ratio:.3g} to {row.p90_ratio:.3g}"
        f" (p10 to p90) over {row.shared_points:,} points"
        for row in rows
    ] or ["the profiles share operations, but no measured point"]
    show({"differences": [asdict(row) for row in rows]}, lines, json)


COMMANDS = ((calibrate, "workbench calibrate --out mine --operations norm,copy --budget-s 5"),)
