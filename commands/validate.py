"""`workbench validate` and `export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UsageError
from .shared import Json, Seed, listed, print_json, print_table, progress_bar, show

if TYPE_CHECKING:
    from ..workbench.validate_result import ValidationResult


def validate(
    scenario: Annotated[Path | None, typer.Argument(help="A scenario (.toml), or a trace beside --model.")] = None,
    suite: Annotated[bool, typer.Option("--suite", help="Run the built-in matrix of 27 scenarios.")] = False,
    measured: Annotated[Path | None, typer.Option(help="CSV of your own engine's times: scenario,metric,value,repeats.")] = None,
    hf: Annotated[str | None, typer.Option(help="A Hugging Face config.json or checkpoint: run its own code.")] = None,
    model: Annotated[str | None, typer.Option(help="Known name or config.json, beside a trace.")] = None,
    policy: Annotated[str, typer.Option(help="Eviction policies, beside a trace.")] = "least-stale,lru",
    prefetch: Annotated[str, typer.Option(help="Prefetchers, beside a trace.")] = "none",
    capacity: Annotated[str, typer.Option(help="Capacities, beside a trace.")] = "25%",
    batch: Annotated[int | None, typer.Option(min=1, help="Sequences that pass together, beside a trace.")] = None,
    tier: Annotated[str | None, typer.Option(help="Where experts live: file, host, paced. (default: paced; suite: all)")] = None,
    bandwidth: Annotated[str, typer.Option(help="Of a paced link, per second.")] = "4GB",
    latency_us: Annotated[float, typer.Option(min=0, help="Of a paced link.")] = 20.0,
    dtype: Annotated[str, typer.Option(help="Format to compute in: fp32 or bf16.")] = "fp32",
    tokens: Annotated[int | None, typer.Option(min=8, help="Rows of the trace to run; of the suite, tokens to decode.")] = None,
    groups: Annotated[int | None, typer.Option(min=1, help="Of the suite: groups of each tier, to make it shorter.")] = None,
    repeats: Annotated[int, typer.Option(min=7, help="Interleaved repeats.")] = 7,
    within: Annotated[str | None, typer.Option(help="Largest TPOT error that is still right, as 10%.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Where the file tier puts its file. (default: temporary)")] = None,
    limit: Annotated[float, typer.Option(min=0.1, help="Seconds that any wait may take.")] = 30.0,
    report: Annotated[Path | None, typer.Option(help="Write an HTML page that works offline.")] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:  # fmt: skip
    """Really run a configuration on this machine, simulate it, and say how far off the prediction was."""
    if sum((scenario is not None, suite, measured is not None, hf is not None)) != 1:
        raise UsageError("validate takes one of: a scenario or trace, --suite, --measured FILE, --hf CONFIG")
    if report is not None and (measured is not None or hf is not None):
        raise UsageError("--report draws a run of our own: a scenario, a trace, or --suite")
    if measured is not None:
        _measured(measured, within, json)
        return
    if hf is not None:
        _hf(hf, within, repeats, seed, json)
        return
    from ..workbench.units import parse_bytes
    from ..workbench.validate import validate as run
    from ..workbench.validate import validate_suite

    largest = None if within is None else share(within)
    with progress_bar() as progress:
        if suite:
            result = validate_suite(
                repeats=repeats, within=largest, groups=groups, tokens=tokens or 28, seed=seed, folder=folder,
                limit_s=limit, timeline=report is not None, progress=progress,
                **({} if tier is None else {"tiers": listed("--tier", tier)}),
            )  # fmt: skip
        else:
            named = {"scenario": scenario} if model is None else {"trace": scenario, "model": model}
            result = run(
                **named, policies=listed("--policy", policy), prefetch=listed("--prefetch", prefetch),
                capacities=listed("--capacity", capacity), batch=batch, tier=tier or "paced",
                link_bytes_per_s=parse_bytes(bandwidth, "--bandwidth"), link_latency_s=latency_us * 1e-6, dtype=dtype,
                tokens=tokens or 64, repeats=repeats, within=largest, seed=seed, folder=folder, limit_s=limit,
                timeline=report is not None, progress=progress,
            )  # fmt: skip
    page = None
    if report is not None:
        from ..reports.validation import validation_report

        page = validation_report(result, report)
    _finish(result, json, page)


def _finish(result: ValidationResult, json: bool, page: Path | None) -> None:
    """Print, and exit with 1 where the verdict is no."""
    if json:
        print_json({**result.to_dict(), **({} if page is None else {"report": str(page)})})
    else:
        print_table(result.rows())
        print("\n".join(result.lines()))
        if page is not None:
            print(f"report: {page}")
    if not result.ok:
        raise typer.Exit(1)


def _measured(path: Path, within: str | None, json: bool) -> None:
    from ..workbench.validate_measured import compare_measured

    found = compare_measured(path)
    lines = [
        f"{row.scenario}: {row.metric.name} predicted {row.metric.predicted:.4g} s, measured {row.metric.measured:.4g} s "
        f"({row.repeats} repeats), off by {row.metric.ape:.1%}"
        for row in found
    ]
    show({"comparisons": [row.to_dict() for row in found]}, lines, json)
    if within is not None and any(row.metric.ape > share(within) for row in found):
        raise typer.Exit(1)


def _hf(source: str, within: str | None, repeats: int, seed: int, json: bool) -> None:
    from ..workbench.validate_hf import validate_hf

    found = validate_hf(source, repeats=repeats, seed=seed)
    show(found.to_dict(), found.lines(), json)
    if within is not None and not found.within(share(within)):
        raise typer.Exit(1)


def share(text: str) -> float:
    """10% or 0.1. Raises `UsageError` for anything else."""
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError as error:
        raise UsageError(f"--within is a share such as 10%, got {text!r}") from error


def export(
    scenario: Annotated[Path, typer.Argument(help="A scenario (.toml) that names a model.")],
    to: Annotated[str, typer.Option(help="The engine: llama.cpp, vllm or sglang.")],
    policy: Annotated[str | None, typer.Option(help="Which one, where the scenario lists several.")] = None,
    prefetch: Annotated[str | None, typer.Option(help="Which one, where the scenario lists several.")] = None,
    capacity: Annotated[str | None, typer.Option(help="Which one, where the scenario lists several.")] = None,
    json: Json = False,
) -> None:
    """The flags with which an engine comes nearest to a configuration, and what it cannot express."""
    from ..workbench.export import export as run

    found = run(scenario, to, policy=policy, prefetch=prefetch, capacity=capacity)
    show(found.to_dict(), found.lines(), json)


COMMANDS = (
    (
        validate,
        "workbench validate traces/data/small-olmoe-stdlib.safetensors --model small-olmoe-stdlib --tokens 96",
    ),
    (export, "workbench export scenario.toml --to llama.cpp --policy lru --prefetch none --capacity 25%"),
)
