"""`workbench replay`, `curve`, `report` and `init`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UsageError
from .shared import Format, Json, Seed, listed, print_json, print_table, progress_bar, show, warn

if TYPE_CHECKING:
    from ..workbench.replay import ReplayResult

_BESIDE_A_SCENARIO = ("trace", "out", "timeline", "report", "json")


def replay(
    asked: typer.Context,
    trace: Annotated[Path, typer.Argument(help="A trace of any known format, or a scenario (.toml).")],
    model: Annotated[str | None, typer.Option(help="Known name or config.json: gives bytes.")] = None,
    hardware: Annotated[str | None, typer.Option(help="Known name or .toml: gives times.")] = None,
    profile: Annotated[str | None, typer.Option(help="Measured kernels: known name or profile.toml.")] = None,
    policy: Annotated[str, typer.Option(help="Eviction policies, a comma between them.")] = "least-stale,lru",
    prefetch: Annotated[str, typer.Option(help="Prefetchers: none,gate:ahead=2,…")] = "none",
    capacity: Annotated[str, typer.Option(help="Share of all experts, bytes, experts or auto: 5%,2GiB,64,auto")] = "5%",
    weights: Annotated[str, typer.Option(help="Format of the offloaded experts: bf16, fp8, q4, …")] = "bf16",
    warm: Annotated[bool, typer.Option("--warm", help="Count only after the cache has filled.")] = False,
    train_share: Annotated[
        float, typer.Option(help="Share of the passes, the first ones, in which policies learn and nothing is counted.")
    ] = 0.0,
    scope: Annotated[
        str, typer.Option(help="One pool over all layers: global; a quota for each: layer, or fitted on what trains.")
    ] = "global",
    contract: Annotated[str, typer.Option(help="What one access is: slots, fused or access.")] = "slots",
    batch: Annotated[int | None, typer.Option(min=1, help="Sequences that pass together. (default: as traced)")] = None,
    context: Annotated[int, typer.Option(min=1, help="Tokens of KV cache a sequence keeps, for capacity auto.")] = 4096,
    experts_home: Annotated[str, typer.Option(help="Where experts not on the device live: host or storage.")] = "host",
    prefetch_budget: Annotated[str | None, typer.Option(help="Bytes a prefetcher may ask for at once: 64MiB")] = None,
    decisions: Annotated[str, typer.Option(help="Deciding costs time: serial, beside the step, or free.")] = "serial",
    miss: Annotated[str, typer.Option(help="What a miss does: load, host, lower, substitute, skip.")] = "load",
    engine: Annotated[str, typer.Option(help="numba (fast) or simpy (the reference): the same results.")] = "numba",
    seed: Seed = 0,
    tie_seed: Annotated[int | None, typer.Option(min=0, help="Break ties in another order, drawn from this.")] = None,
    format: Format = None,
    out: Annotated[Path | None, typer.Option(help="Keep the result in this folder, for workbench report.")] = None,
    timeline: Annotated[Path | None, typer.Option(help="Write a few steps as Chrome trace JSON for Perfetto.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML page that works offline.")] = None,
    json: Json = False,
) -> None:  # fmt: skip
    """What each cache policy would cost on a machine: hits, kinds of miss, bytes moved, TTFT and TPOT.

    Without a model nothing is known of bytes, without a machine nothing of times: then it counts.
    """
    if trace.suffix.lower() == ".toml":
        result = _replay_scenario(asked, trace)
    else:
        from ..workbench.replay import replay as run
        from ..workbench.units import parse_bytes

        if timeline is not None and (model is None or hardware is None):
            raise UsageError("--timeline needs times: give --model and --hardware")
        budget = None if prefetch_budget is None else parse_bytes(prefetch_budget, "--prefetch-budget")
        with progress_bar() as progress:
            result = run(
                trace, model=model, hardware=hardware, profile=profile, policies=listed("--policy", policy),
                prefetch=listed("--prefetch", prefetch), capacities=listed("--capacity", capacity),
                weights=weights, warm=warm, train_share=train_share, scope=scope, contract=contract, batch=batch, seed=seed,
                tie_seed=tie_seed, context=context, experts_home=experts_home, prefetch_budget_bytes=budget,
                decisions=decisions, miss=miss, engine=engine, format=format, progress=progress,
            )  # fmt: skip
    _finish_replay(result, out=out, timeline=timeline, page=report, json=json)


def _replay_scenario(asked: typer.Context, path: Path) -> ReplayResult:
    """Run a scenario file. Options that it says itself are refused beside it: one of the two would be ignored."""
    from ..workbench.scenario import replay_scenario

    for name in asked.params:
        source = asked.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and name not in _BESIDE_A_SCENARIO:
            option = "--" + name.replace("_", "-")
            raise UsageError(f"{option} stands beside the scenario {path}: say it in the file instead")
    with progress_bar() as progress:
        return replay_scenario(path, progress=progress)


def curve(
    trace: Annotated[Path, typer.Argument(help="A trace of any known format.")],
    policy: Annotated[
        str, typer.Option(help="lru, belady-mandatory, static (one pass each); fifo, clock, lfu.")
    ] = "lru,belady-mandatory,static",
    capacity: Annotated[str | None, typer.Option(help="Shares or experts: 5%,64. (default: about sixteen)")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Sequences that pass together. (default: as traced)")] = None,
    format: Format = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Hit rate against capacity for a whole trace, contract access: how much memory does it want?

    No machine and no times; workbench replay knows every policy, prefetcher and contract.
    """
    from ..workbench.curve import curve as run

    with progress_bar() as progress:
        result = run(
            trace, policies=listed("--policy", policy), batch=batch, format=format, progress=progress,
            capacities=None if capacity is None else listed("--capacity", capacity),
        )  # fmt: skip
    warn(result.warnings)
    if json:
        print_json(result.to_dict())
        return
    print_table([
        {"capacity": f"{row['capacity_experts']:,}", "of all": f"{row['share']:.1%}"}
        | {name: f"{row[name]:.2%}" for name in result.misses}
        for row in result.table.to_dict("records")
    ])  # fmt: skip
    for line in result.lines():
        print(line)


def report(
    run: Annotated[Path, typer.Argument(help="A folder that workbench replay --out wrote.")],
    out: Annotated[Path | None, typer.Option(help="The page to write. (default: report.html in RUN)")] = None,
    json: Json = False,
) -> None:
    """Draw a saved result again, without running it again."""
    from ..reports import report as draw

    page = draw(run, out or run / "report.html")
    show({"report": str(page)}, [f"report: {page}"], json)


def init(
    path: Annotated[Path, typer.Argument(help="The scenario file to write.")] = Path("scenario.toml"),
    json: Json = False,
) -> None:
    """Write a first scenario file with comments; run it with workbench replay."""
    from ..workbench.scenario import write_first_scenario

    write_first_scenario(path)
    show({"scenario": str(path)}, [f"wrote {path}", f"run it: workbench replay {path}"], json)


def _finish_replay(
    result: ReplayResult, *, out: Path | None, timeline: Path | None, page: Path | None, json: bool
) -> None:
    """Write what was asked for beside the table, then print the table and what it means."""
    written = [f"result: {result.save(out)}"] if out else []
    if timeline is not None:
        if result.timeline is None:
            raise UsageError("--timeline needs times, and this scenario names no model or no machine")
        from ..reports import write_chrome_trace

        written.append(f"timeline: {write_chrome_trace(result.timeline['events'], timeline)}")
    if page is not None:
        from ..reports import report as draw

        written.append(f"report: {draw(result, page)}")
    warn(result.warnings)
    if json:
        print_json(result.to_dict())
        return
    print_table(result.table.to_dict("records"))
    for line in ("", result.sentence(), *result.reporting_lines(), *written):
        print(line)


COMMANDS = (
    (replay, "workbench replay traces/data/small-olmoe-stdlib.safetensors --capacity 25%,50%"),
    (curve, "workbench curve traces/data/small-olmoe-stdlib.safetensors --policy lru,fifo"),
    (report, "workbench report runs/demo --out report.html"),
    (init, "workbench init scenario.toml"),
)
