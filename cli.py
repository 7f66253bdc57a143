"""The command `workbench`: parse, call one function, print, exit code. No arithmetic, and quick to start.

Exit codes: 0 fine · 1 the run failed · 2 the request is wrong · 130 interrupted. Tables go to standard output,
warnings and progress to standard error; `--json` prints one document on one line instead of a table.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Annotated

if __name__ == "__main__":  # started as a file: begin again as a part of the package, for the imports below
    from importlib import import_module

    sys.exit(import_module("codesign.cli").main())

import typer

from .commands import catalog, explore, profile, replay, sweep, trace, validate
from .errors import WorkbenchError

_HELP = "Replay expert-access traces of mixture-of-experts models on simulated machines."
_SHORT_HELP = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    help=_HELP, no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False,
    context_settings=_SHORT_HELP,
)  # fmt: skip
for command, example in (*replay.COMMANDS, *profile.COMMANDS, *sweep.COMMANDS, *explore.COMMANDS, *validate.COMMANDS):
    app.command(epilog=f"Example: {example}")(command)
app.add_typer(profile.app, name="profile")
app.add_typer(trace.app, name="trace")
app.add_typer(catalog.model_app, name="model")
app.add_typer(catalog.hardware_app, name="hardware")


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
