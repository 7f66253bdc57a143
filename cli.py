"""The command `workbench`: parse, call one function, print, exit code. No arithmetic, and quick to start.

Exit codes: 0 fine · 1 the run failed · 2 the request is wrong · 130 interrupted. Tables go to standard output,
warnings and progress to standard error; `--json` prints one document on one line instead of a table.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

if __name__ == "__main__":  # started as a file: the root is not on the path as a package, the installed one is
    from codesign.cli import main

    sys.exit(main())

import typer

from .errors import UsageError, WorkbenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .traces import ExpertTrace
    from .workbench.replay import ReplayResult

app = typer.Typer(
    name="workbench",
    help="Replay expert-access traces of mixture-of-experts models on simulated machines.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
trace_app = typer.Typer(no_args_is_help=True, help="Look at, convert, synthesise or capture traces.")
model_app = typer.Typer(no_args_is_help=True, help="Known models, and any Hugging Face config.json.")
hardware_app = typer.Typer(no_args_is_help=True, help="Known machines, every number with its source.")
app.add_typer(trace_app, name="trace")
app.add_typer(model_app, name="model")
app.add_typer(hardware_app, name="hardware")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on one line instead of a table.")]
Seed = Annotated[int, typer.Option(help="Everything random comes from this number.", min=0)]
Format = Annotated[str | None, typer.Option(help="Name the file's format instead of finding it from the content.")]
Experts = Annotated[
    int | None, typer.Option("--num-experts", min=1, help="Routed experts a layer, where the file does not say.")
]
Lenient = Annotated[bool, typer.Option(help="Skip unreadable rows, and say how many, instead of refusing.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="The trace file to write.")]


def _show_version(asked: bool) -> None:
    if asked:
        from . import __version__

        print(f"workbench {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Replay expert-access traces of mixture-of-experts models on simulated machines."""


@app.command(
    epilog="Example: workbench replay trace.safetensors --model olmoe-1b-7b --hardware rtx-4090 --capacity 5%,auto"
)
def replay(
    trace: Annotated[Path, typer.Argument(help="A trace of any known format, or a scenario file (.toml).")],
    model: Annotated[str | None, typer.Option(help="Known name or config.json; gives sizes and, with hardware, times.")] = None,
    hardware: Annotated[str | None, typer.Option(help="Known name or .toml file; needed for times.")] = None,
    policy: Annotated[list[str], typer.Option(help="Eviction policies, comma between them.")] = ["least-stale,lru"],  # noqa: B006
    prefetch: Annotated[list[str], typer.Option(help="Prefetchers, such as none,gate:ahead=2.")] = ["none"],  # noqa: B006
    capacity: Annotated[
        list[str], typer.Option(help="Shares (5%), bytes (2GiB), experts (64) or auto, comma between them.")
    ] = ["5%"],  # noqa: B006
    weights: Annotated[str, typer.Option(help="Format of the offloaded experts: bf16, fp8, q4, …")] = "bf16",
    warm: Annotated[bool, typer.Option("--warm", help="Count only after the cache has filled.")] = False,
    scope: Annotated[str, typer.Option(help="One pool over all layers (global) or a quota each (layer).")] = "global",
    contract: Annotated[str, typer.Option(help="What an access is: slots, fused or access.")] = "slots",
    batch: Annotated[int, typer.Option(min=1, help="Sequences that pass together.")] = 1,
    context: Annotated[int, typer.Option(min=1, help="Tokens of KV cache a sequence, for capacity auto.")] = 4096,
    experts_home: Annotated[str, typer.Option(help="Where evicted experts live: host or storage.")] = "host",
    engine: Annotated[str, typer.Option(help="numba (fast) or simpy (the reference); both mean the same.")] = "numba",
    seed: Seed = 0,
    format: Format = None,
    out: Annotated[Path | None, typer.Option(help="Folder to keep the result in, for workbench report.")] = None,
    timeline: Annotated[Path | None, typer.Option(help="Write a Chrome trace JSON (opens in Perfetto).")] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML page that works offline.")] = None,
    json: Json = False,
) -> None:
    """What each cache policy would cost on a machine: hits, kinds of miss, bytes moved, TTFT and TPOT."""
    from .workbench.replay import replay as run

    with _progress() as progress:
        result = run(
            trace,
            model=model,
            hardware=hardware,
            policies=_listed(policy, "--policy"),
            prefetch=_listed(prefetch, "--prefetch"),
            capacities=_listed(capacity, "--capacity"),
            weights=weights,
            warm=warm,
            scope=scope,
            contract=contract,
            batch=batch,
            seed=seed,
            context=context,
            engine=engine,
            experts_home=experts_home,
            out=out,
            timeline=timeline,
            format=format,
            progress=progress,
        )
    _show_replay(result, json)
