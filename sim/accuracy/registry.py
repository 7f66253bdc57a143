"""The accuracy laws by name. A law is one file; a fit under other conditions is a law of its own."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ...errors import unknown_name
from .abnar import ABNAR_2025
from .krajewski import KRAJEWSKI_2024, KRAJEWSKI_2024_E16
from .law import AccuracyLaw
from .ling import LING_2025
from .ludziejewski import LUDZIEJEWSKI_2025

_LINEUP = (KRAJEWSKI_2024, KRAJEWSKI_2024_E16, ABNAR_2025, LUDZIEJEWSKI_2025, LING_2025)

ACCURACY_LAWS: Mapping[str, AccuracyLaw] = MappingProxyType({law.name: law for law in _LINEUP})


def accuracy_law(name: str) -> AccuracyLaw:
    """The law of that name. Raises `UsageError` naming the nearest known one."""
    found = ACCURACY_LAWS.get(name)
    if found is None:
        raise unknown_name("accuracy law", name, ACCURACY_LAWS)
    return found
