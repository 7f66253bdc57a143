"""Designs: models derived from a base by named transformations, as columns of a table, and what they cost."""

from .columns import Designs
from .constraints import CONSTRAINTS, Checked, Limits, checked
from .costs import DesignCosts, design_costs
from .point import Layout, OperatingPoint
from .resize import resized
from .transform import TRANSFORMS, standard_counterpart

__all__ = [
    "CONSTRAINTS",
    "TRANSFORMS",
    "Checked",
    "DesignCosts",
    "Designs",
    "Layout",
    "Limits",
    "OperatingPoint",
    "checked",
    "design_costs",
    "resized",
    "standard_counterpart",
]
