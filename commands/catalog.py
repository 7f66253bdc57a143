"""`workbench model …` and `workbench hardware …`."""

from __future__ import annotations

import typer

from .shared import Json, Name, print_json, print_table, show

model_app = typer.Typer(help="Known models, and any Hugging Face config.json.", no_args_is_help=True)
hardware_app = typer.Typer(help="Known machines, every number with its source.", no_args_is_help=True)


@model_app.command("list", epilog="Example: workbench model list")
def list_models(json: Json = False) -> None:
    """The models that are known by name."""
    from ..sim.catalog import load_model, model_names
    from ..workbench.catalog_tables import model_table

    if json:
        print_json({"models": [load_model(name).to_dict() for name in model_names()]})
    else:
        print_table(model_table())


@model_app.command("show", epilog="Example: workbench model show olmoe-1b-7b")
def show_model(name: Name, json: Json = False) -> None:
    """Parameters, bytes and KV cache of one model, derived from its config.json."""
    from ..sim.catalog import load_model

    spec = load_model(name)
    show(spec.to_dict(), spec.summary_lines(), json)


@hardware_app.command("list", epilog="Example: workbench hardware list")
def list_hardware(json: Json = False) -> None:
    """The machines that are known by name."""
    from ..sim.catalog import hardware_names, load_hardware
    from ..workbench.catalog_tables import hardware_table

    if json:
        print_json({"hardware": [load_hardware(name).to_dict() for name in hardware_names()]})
    else:
        print_table(hardware_table())


@hardware_app.command("show", epilog="Example: workbench hardware show h200-sxm")
def show_hardware(name: Name, json: Json = False) -> None:
    """Every number of one machine, whether it is measured, from a data sheet or assumed, and its source."""
    from ..sim.catalog import load_hardware

    spec = load_hardware(name)
    show(spec.to_dict(), spec.summary_lines(), json)
