"""The command `workbench`: parse, call one function, print, exit code. No arithmetic, and quick to start.

Exit codes: 0 fine · 1 the run failed · 2 the request is wrong · 130 interrupted. Tables go to standard output,
warnings and progress to standard error; `--json` prints one document on one line instead of a table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

if __name__ == "__main__":  # started as a file: begin again as a part of the package, for the imports below
    from importlib import import_module

    sys.exit(import_module("codesign.cli").main())

import typer

from .errors import UsageError, WorkbenchError

if TYPE_CHECKING:
    from .traces import ExpertTrace
    from .workbench.replay import ReplayResult

_HELP = "Replay expert-access traces of mixture-of-experts models on simulated machines."
_SHORT_HELP = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    help=_HELP, no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False,
    context_settings=_SHORT_HELP,
)  # fmt: skip
trace_app = typer.Typer(help="Look at, convert, synthesise or capture traces.", no_args_is_help=True)
model_app = typer.Typer(help="Known models, and any Hugging Face config.json.", no_args_is_help=True)
hardware_app = typer.Typer(help="Known machines, every number with its source.", no_args_is_help=True)
app.add_typer(trace_app, name="trace")
app.add_typer(model_app, name="model")
app.add_typer(hardware_app, name="hardware")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on one line instead of a table.")]
Seed = Annotated[int, typer.Option(min=0, help="Everything random comes from this number.")]
Format = Annotated[str | None, typer.Option(help="Name the file's format instead of finding it from its content.")]
Experts = Annotated[int | None, typer.Option(min=1, help="Routed experts a layer, where the file does not say.")]
Lenient = Annotated[bool, typer.Option("--lenient", help="Skip unreadable rows, and say how many.")]
TraceOut = Annotated[Path, typer.Argument(metavar="OUT", help="The trace file to write (.safetensors).")]
_BESIDE_A_SCENARIO = ("trace", "out", "timeline", "report", "json")
Name = Annotated[str, typer.Argument(metavar="NAME", help="A known name, or the path of a file.")]


def _show_version(asked: bool) -> None:
    if asked:
        from . import __version__

        print(f"workbench {__version__}")
        raise typer.Exit


@app.callback(help=_HELP)
def common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None: ...


@app.command(epilog="Example: workbench replay traces/data/small-olmoe-stdlib.safetensors --capacity 25%,50%")
def replay(
    asked: typer.Context,
    trace: Annotated[Path, typer.Argument(help="A trace of any known format, or a scenario (.toml).")],
    model: Annotated[str | None, typer.Option(help="Known name or config.json: gives bytes.")] = None,
    hardware: Annotated[str | None, typer.Option(help="Known name or .toml: gives times.")] = None,
    policy: Annotated[str, typer.Option(help="Eviction policies, a comma between them.")] = "least-stale,lru",
    prefetch: Annotated[str, typer.Option(help="Prefetchers: none,gate:ahead=2,…")] = "none",
    capacity: Annotated[str, typer.Option(help="Share of all experts, bytes, experts or auto: 5%,2GiB,64,auto")] = "5%",
    weights: Annotated[str, typer.Option(help="Format of the offloaded experts: bf16, fp8, q4, …")] = "bf16",
    warm: Annotated[bool, typer.Option("--warm", help="Count only after the cache has filled.")] = False,
    scope: Annotated[str, typer.Option(help="One pool over all layers: global; a quota for each: layer.")] = "global",
    contract: Annotated[str, typer.Option(help="What one access is: slots, fused or access.")] = "slots",
    batch: Annotated[int | None, typer.Option(min=1, help="Sequences that pass together. (default: as traced)")] = None,
    context: Annotated[int, typer.Option(min=1, help="Tokens of KV cache a sequence keeps, for capacity auto.")] = 4096,
    experts_home: Annotated[str, typer.Option(help="Where experts not on the device live: host or storage.")] = "host",
    prefetch_budget: Annotated[str | None, typer.Option(help="Bytes a prefetcher may ask for at once: 64MiB")] = None,
    decisions: Annotated[str, typer.Option(help="Deciding costs time: serial, beside the step, or free.")] = "serial",
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
        from .workbench.replay import replay as run
        from .workbench.units import parse_bytes

        if timeline is not None and (model is None or hardware is None):
            raise UsageError("--timeline needs times: give --model and --hardware")
        budget = None if prefetch_budget is None else parse_bytes(prefetch_budget, "--prefetch-budget")
        with _progress() as progress:
            result = run(
                trace, model=model, hardware=hardware, policies=_listed("--policy", policy),
                prefetch=_listed("--prefetch", prefetch), capacities=_listed("--capacity", capacity),
                weights=weights, warm=warm, scope=scope, contract=contract, batch=batch, seed=seed,
                tie_seed=tie_seed, context=context, experts_home=experts_home, prefetch_budget_bytes=budget,
                decisions=decisions, engine=engine, format=format, progress=progress,
            )  # fmt: skip
    _finish_replay(result, out=out, timeline=timeline, page=report, json=json)


def _replay_scenario(asked: typer.Context, path: Path) -> ReplayResult:
    """Run a scenario file. Options that it says itself are refused beside it: one of the two would be ignored."""
    from .workbench.scenario import replay_scenario

    for name in asked.params:
        source = asked.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and name not in _BESIDE_A_SCENARIO:
            option = "--" + name.replace("_", "-")
            raise UsageError(f"{option} stands beside the scenario {path}: say it in the file instead")
    with _progress() as progress:
        return replay_scenario(path, progress=progress)


@app.command(epilog="Example: workbench report runs/demo --out report.html")
def report(
    run: Annotated[Path, typer.Argument(help="A folder that workbench replay --out wrote.")],
    out: Annotated[Path | None, typer.Option(help="The page to write. (default: report.html in RUN)")] = None,
    json: Json = False,
) -> None:
    """Draw a saved result again, without running it again."""
    from .reports import report as draw

    page = draw(run, out or run / "report.html")
    _show({"report": str(page)}, [f"report: {page}"], json)


@app.command(epilog="Example: workbench init scenario.toml")
def init(
    path: Annotated[Path, typer.Argument(help="The scenario file to write.")] = Path("scenario.toml"),
    json: Json = False,
) -> None:
    """Write a first scenario file with comments; run it with workbench replay."""
    from .workbench.scenario import write_first_scenario

    write_first_scenario(path)
    _show({"scenario": str(path)}, [f"wrote {path}", f"run it: workbench replay {path}"], json)


@trace_app.command(epilog="Example: workbench trace info traces/data/small-olmoe-stdlib.safetensors")
def info(
    file: Annotated[Path, typer.Argument(help="A trace of any known format.")],
    format: Format = None,
    num_experts: Experts = None,
    lenient: Lenient = False,
    json: Json = False,
) -> None:
    """Shape, reuse against chance, load skew, entropy, working set, guesses, and what is odd about it."""
    from .workbench.trace_files import describe_trace

    found = describe_trace(file, format=format, num_experts=num_experts, lenient=lenient)
    _show(found.to_dict(), found.lines(), json)


@trace_app.command(epilog="Example: workbench trace convert routing.jsonl trace.safetensors --permute steps --seed 1")
def convert(
    file: Annotated[Path, typer.Argument(help="A trace of any known format.")],
    out: TraceOut,
    permute: Annotated[str | None, typer.Option(help="steps: put them into a random order (the control).")] = None,
    seed: Seed = 0,
    format: Format = None,
    num_experts: Experts = None,
    lenient: Lenient = False,
    json: Json = False,
) -> None:
    """Write a trace of any known format as our own, which is memory-mapped when read."""
    from .workbench.trace_files import convert_trace

    trace = convert_trace(
        file, out, format=format, num_experts=num_experts, lenient=lenient, permute=permute, seed=seed
    )
    _show_trace(trace, out, json)


@trace_app.command(epilog="Example: workbench trace synth new.safetensors --model olmoe-1b-7b --tokens 200 --reuse 0.3")
def synth(
    out: TraceOut,
    model: Annotated[str | None, typer.Option(help="Take the shape of this model.")] = None,
    layers: Annotated[int | None, typer.Option(min=1, help="MoE layers.")] = None,
    experts: Annotated[int | None, typer.Option(min=1, help="Routed experts a layer.")] = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="Experts a token uses in a layer.")] = None,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens in all.")] = 1000,
    sequences: Annotated[int, typer.Option(min=1, help="Sequences that they are divided into.")] = 1,
    prefill: Annotated[int, typer.Option(min=0, help="Prompt tokens of each sequence.")] = 0,
    reuse: Annotated[float | None, typer.Option(help="Share the next token uses again. (default: chance)")] = None,
    skew: Annotated[float, typer.Option(help="Exponent of the load over experts; 0 is even.")] = 0.0,
    cross_layer: Annotated[float, typer.Option(help="How far a layer decides the next one, 0 to 1.")] = 0.0,
    guess_recall: Annotated[float | None, typer.Option(help="Share of the true experts that the guesses hold.")] = None,
    lookahead: Annotated[int, typer.Option(min=1, help="Layers that guesses look ahead.")] = 1,
    guesses: Annotated[int | None, typer.Option(min=1, help="Experts guessed a layer. (default: top-k)")] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:  # fmt: skip
    """Make a trace whose statistics are those asked for; it is marked as synthetic."""
    from .workbench.trace_files import synthesise_trace

    trace = synthesise_trace(
        out, model=model, num_layers=layers, num_experts=experts, top_k=top_k, num_tokens=tokens,
        num_sequences=sequences, prefill_tokens=prefill, reuse=reuse, skew=skew, cross_layer=cross_layer,
        guess_recall=guess_recall, lookahead=lookahead, guesses=guesses, seed=seed,
    )  # fmt: skip
    _show_trace(trace, out, json)


@trace_app.command(epilog="Example: workbench trace capture path/to/model book.txt --out trace.safetensors")
def capture(
    model: Annotated[str, typer.Argument(help="Folder of a Hugging Face MoE model (OLMoE, Mixtral, Qwen-MoE, …).")],
    texts: Annotated[list[Path], typer.Argument(metavar="TEXT...", help="Text files to take prompts from.")],
    out: Annotated[Path, typer.Option(help="The trace file to write (.safetensors).")],
    sequences: Annotated[int, typer.Option(min=1, help="Prompts to run.")] = 8,
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of each prompt.")] = 64,
    decode: Annotated[int, typer.Option(min=0, help="Tokens to generate for each.")] = 64,
    lookahead: Annotated[int, typer.Option(min=0, help="Layers ahead whose gates are asked.")] = 3,
    guesses: Annotated[int, typer.Option(min=1, help="Experts to keep of each guess.")] = 8,
    device: Annotated[str, typer.Option(help="cpu, cuda, …")] = "cpu",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Run a model and record which experts it uses (needs torch and transformers: the extra `capture`)."""
    from .workbench.trace_files import capture_trace

    trace = capture_trace(
        model, texts, out, num_sequences=sequences, prompt_tokens=prompt, decode_tokens=decode,
        lookahead=lookahead, guesses=guesses, device=device, seed=seed,
    )  # fmt: skip
    _show_trace(trace, out, json)


@model_app.command("list", epilog="Example: workbench model list")
def list_models(json: Json = False) -> None:
    """The models that are known by name."""
    from .sim.catalog import load_model, model_names
    from .workbench.catalog_tables import model_table

    if json:
        _print_json({"models": [load_model(name).to_dict() for name in model_names()]})
    else:
        _print_table(model_table())


@model_app.command("show", epilog="Example: workbench model show olmoe-1b-7b")
def show_model(name: Name, json: Json = False) -> None:
    """Parameters, bytes and KV cache of one model, derived from its config.json."""
    from .sim.catalog import load_model

    spec = load_model(name)
    _show(spec.to_dict(), spec.summary_lines(), json)


@hardware_app.command("list", epilog="Example: workbench hardware list")
def list_hardware(json: Json = False) -> None:
    """The machines that are known by name."""
    from .sim.catalog import hardware_names, load_hardware
    from .workbench.catalog_tables import hardware_table

    if json:
        _print_json({"hardware": [load_hardware(name).to_dict() for name in hardware_names()]})
    else:
        _print_table(hardware_table())


@hardware_app.command("show", epilog="Example: workbench hardware show h200-sxm")
def show_hardware(name: Name, json: Json = False) -> None:
    """Every number of one machine, whether it is measured, from a data sheet or assumed, and its source."""
    from .sim.catalog import load_hardware

    spec = load_hardware(name)
    _show(spec.to_dict(), spec.summary_lines(), json)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit. A user's mistake is one line on standard error, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal without UTF-8, or a path that is no text: shown escaped
            stream.reconfigure(errors="backslashreplace")
    try:
        app(args=None if arguments is None else list(arguments), prog_name="workbench")
    except WorkbenchError as error:
        print(f"workbench: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


def _listed(option: str, text: str) -> list[str]:
    """The items of a comma list. Raises `UsageError` for an empty one."""
    items = [item.strip() for item in text.split(",")]
    if not all(items):
        raise UsageError(f"{option} {text!r} has an empty item")
    return items


@contextmanager
def _progress() -> Iterator[Callable[[int, int, str], None]]:
    """A bar with the time left on standard error; silent where that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading", total=None)
        yield lambda done, total, label: bar.update(task, completed=done, total=total, description=label)


def _finish_replay(
    result: ReplayResult, *, out: Path | None, timeline: Path | None, page: Path | None, json: bool
) -> None:
    """Write what was asked for beside the table, then print the table and what it means."""
    written = [f"result: {result.save(out)}"] if out else []
    if timeline is not None:
        if result.timeline is None:
            raise UsageError("--timeline needs times, and this scenario names no model or no machine")
        from .reports import write_chrome_trace

        written.append(f"timeline: {write_chrome_trace(result.timeline['events'], timeline)}")
    if page is not None:
        from .reports import report as draw

        written.append(f"report: {draw(result, page)}")
    _warn(result.warnings)
    if json:
        _print_json(result.to_dict())
        return
    _print_table(result.table.to_dict("records"))
    for line in ("", result.sentence(), *result.reporting_lines(), *written):
        print(line)


def _show_trace(trace: ExpertTrace, path: Path, json: bool) -> None:
    facts = {
        "path": str(path), "model": trace.model, "synthetic": trace.synthetic, "tokens": trace.num_tokens,
        "sequences": trace.num_sequences, "layers": trace.num_layers, "num_experts": trace.num_experts,
        "top_k": trace.top_k, "notes": list(trace.notes),
    }  # fmt: skip
    _warn(trace.notes)
    line = (
        f"wrote {path}: {trace.num_tokens:,} tokens in {trace.num_sequences:,} sequences, "
        f"{trace.num_layers} MoE layers, top-{trace.top_k} of {trace.num_experts} experts"
    )
    _show(facts, [line], json)


def _show(document: dict[str, Any], lines: Sequence[str], json: bool) -> None:
    if json:
        _print_json(document)
    else:
        print("\n".join(lines))


def _warn(warnings: Sequence[str]) -> None:
    for warning in warnings:
        print(f"note: {warning}", file=sys.stderr)


def _print_json(document: dict[str, Any]) -> None:
    from json import dumps

    print(dumps(document, ensure_ascii=False, allow_nan=False))


def _print_table(rows: Sequence[Mapping[Any, str]]) -> None:
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
