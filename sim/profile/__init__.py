"""Profiles: measured rows become laws that answer any shape, with a band that says how well."""

from ..estimate import HOW, Estimate
from .profile import Profile, fit_profile
from .roof import Roof, roof_of
from .store import load_profile, save_profile

__all__ = ["HOW", "Estimate", "Profile", "Roof", "fit_profile", "load_profile", "roof_of", "save_profile"]
