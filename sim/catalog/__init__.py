"""Known models and known machines: data files beside this one, each number with its source.

A model is a Hugging Face config's facts (`models/*.json`), a machine a sheet (`hardware/*.toml`). Whatever takes a name
of the catalog takes a path to such a file too. Importing this module reads nothing.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InputFileError, unknown_name

if TYPE_CHECKING:
    from ..hardware import HardwareSpec
    from ..model import ModelSpec

_HERE = Path(__file__).parent


def model_names() -> list[str]:
    """Names of the models that ship with the program, sorted."""
    return sorted(path.stem for path in (_HERE / "models").glob("*.json"))


def hardware_names() -> list[str]:
    """Names of the machines that ship with the program, sorted."""
    return sorted(path.stem for path in (_HERE / "hardware").glob("*.toml"))


def profile_names() -> list[str]:
    """Names of the profiles that ship with the program, sorted."""
    return sorted(path.stem for path in (_HERE / "profiles").glob("*.toml"))


def profile_path(name: str) -> Path:
    """The header of a profile of the catalog."""
    return _HERE / "profiles" / f"{name}.toml"


@cache
def _hub_names() -> dict[str, str]:
    """Hugging Face repository in lower case → catalog name."""
    return {str(alias).lower(): name for name in model_names() for alias in model_document(name)["alias"]}  # type: ignore[attr-defined]


@cache
def model_document(name: str) -> dict[str, object]:
    """The catalog file of a model as it is written: config, sources, published figures."""
    document: dict[str, object] = json.loads((_HERE / "models" / f"{name}.json").read_text(encoding="utf-8"))
    return document


def load_model(name_or_path: str | Path) -> ModelSpec:
    """A model by catalog name, by Hugging Face repository name, or by path to a `config.json` or its folder.

    Raises `UsageError` naming the nearest known name, or the file and field that are wrong.
    """
    from ..model_config import read_model_config

    text = str(name_or_path)
    name = text.lower()
    if name in model_names():
        return read_model_config(_HERE / "models" / f"{name}.json")
    path = Path(text)
    if path.exists() or path.suffix == ".json":
        return read_model_config(path)
    hub = _hub_names().get(name)
    if hub is not None:
        return load_model(hub)
    raise unknown_name("model (a name of the catalog, or a path to a config.json)", text, model_names())


def load_hardware(name_or_path: str | Path) -> HardwareSpec:
    """A machine by catalog name or by path to a `.toml` sheet.

    Raises `UsageError` naming the nearest known name, or the file and field that are wrong.
    """
    from ..hardware import read_hardware

    text = str(name_or_path)
    if text.lower() in hardware_names():
        return read_hardware(_HERE / "hardware" / f"{text.lower()}.toml")
    path = Path(text)
    if path.is_dir():
        raise InputFileError(path, "is a directory, expected a hardware sheet (.toml)")
    if path.exists() or path.suffix == ".toml":
        return read_hardware(path)
    raise unknown_name("hardware (a name of the catalog, or a path to a .toml)", text, hardware_names())
