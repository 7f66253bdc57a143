"""Published measurements of real GPUs: a reader of aiconfigurator-core's tables (its data only, never its estimators)."""

from .package import SYSTEMS, published_roof, systems
from .read import Published, read_published

__all__ = ["SYSTEMS", "Published", "published_roof", "read_published", "systems"]
