"""Accuracy without training: published scaling laws that name their source and refuse outside what they were fitted on."""

from .inputs import AccuracyInputs
from .law import NOT_LATENT, AccuracyLaw, Estimates, LawInput
from .registry import ACCURACY_LAWS, accuracy_law

__all__ = [
    "ACCURACY_LAWS",
    "NOT_LATENT",
    "AccuracyInputs",
    "AccuracyLaw",
    "Estimates",
    "LawInput",
    "accuracy_law",
]
