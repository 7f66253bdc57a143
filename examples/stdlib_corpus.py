"""The text that `train_small_moe.py` and `capture_small_moe.py` share: the Python standard library, split in two.

Every machine that runs Python has it (licence: PSF-2.0): modules, their docstrings, and `pydoc_data/topics.py`, which
holds the language reference as text. Left out are tests, the tables of `encodings/` and what is not the standard
library (`site-packages`). Files are held out by a hash of their name, so the split is the same everywhere.
"""

from __future__ import annotations

import hashlib
import sysconfig
from pathlib import Path

LEFT_OUT_FOLDERS = {"test", "tests", "idle_test", "site-packages", "encodings", "__pycache__"}
HELD_OUT_ONE_IN = 20


def corpus_files() -> list[tuple[str, Path]]:
    """(name relative to the standard library, path) of each source file, sorted by name."""
    root = Path(sysconfig.get_paths()["stdlib"])
    names = ((path.relative_to(root), path) for path in root.rglob("*.py"))
    kept = [(name.as_posix(), path) for name, path in names if not LEFT_OUT_FOLDERS & set(name.parts)]
    return sorted(kept)


def is_held_out(name: str) -> bool:
    """Whether the file of this name is never trained on: one in twenty, by the SHA-256 of its name."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % HELD_OUT_ONE_IN == 0


def read_split(*, held_out: bool) -> list[tuple[str, str]]:
    """(name, text) of the training files or of the held-out files; empty files are left out."""
    chosen = [(name, path) for name, path in corpus_files() if is_held_out(name) == held_out]
    texts = [(name, path.read_text(encoding="utf-8", errors="replace")) for name, path in chosen]
    return [(name, text) for name, text in texts if text.strip()]
