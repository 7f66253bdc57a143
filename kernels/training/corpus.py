"""Text to train on that every machine has: the sources of the Python standard library, byte by byte.

Modules, their docstrings, and `pydoc_data/topics.py`, which holds the language reference as prose; licence PSF-2.0. Left
out are tests, the tables of `encodings/`, and what is no part of the standard library. A token is a byte, so a loss in
nats a token is one in nats a byte, and designs are compared on text, not on tokenisers. The text differs between
versions of Python: `sha256` says which one it was.
"""

from __future__ import annotations

import hashlib
import platform
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError

VOCAB = 256
_LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "encodings", "__pycache__", "lib2to3"}
_HELD_OUT_ONE_IN = 20
_BEFORE_EACH_FILE = b"\0"  # occurs in no source file


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """Tokens to train on and tokens held out, from different files."""

    name: str
    train_N: NDArray[np.uint8]
    held_out_N: NDArray[np.uint8]
    vocab: int = VOCAB
    sha256: str = field(init=False)
    """Of both parts."""

    def __post_init__(self) -> None:
        for what, part in (("training", self.train_N), ("held-out", self.held_out_N)):
            if part.size < 2 or part.max() >= self.vocab:
                raise UsageError(
                    f"corpus {self.name}: its {what} part needs 2 tokens or more, all below {self.vocab}"
                )
        both = hashlib.sha256(self.train_N.tobytes())
        both.update(hashlib.sha256(self.held_out_N.tobytes()).digest())
        object.__setattr__(self, "sha256", both.hexdigest())

    def facts(self) -> dict[str, object]:
        """Plain values that say which text this is; `unigram_entropy` is in nats a token, of the held-out part."""
        return {
            "name": self.name,
            "sha256": self.sha256,
            "train_tokens": int(self.train_N.size),
            "held_out_tokens": int(self.held_out_N.size),
            "vocab": self.vocab,
            "unigram_entropy": unigram_entropy(self.held_out_N),
        }


def stdlib_corpus() -> Corpus:
    """The standard library of this Python. One file in twenty is held out, by the SHA-256 of its name."""
    root = Path(sysconfig.get_paths()["stdlib"])
    train: list[bytes] = []
    held_out: list[bytes] = []
    for name, path in sorted(_files(root)):
        text = path.read_bytes().replace(_BEFORE_EACH_FILE, b"")
        if text.strip():
            (held_out if is_held_out(name) else train).append(text)
    if not train or not held_out:
        raise UsageError(f"no sources of the Python standard library in {root}")
    return Corpus(
        f"Python {platform.python_version()} standard library, bytes", _joined(train), _joined(held_out)
    )


def is_held_out(name: str) -> bool:
    """Whether the file of this name (relative, with forward slashes) is never trained on."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % _HELD_OUT_ONE_IN == 0


def unigram_entropy(tokens_N: NDArray[np.uint8]) -> float:
    """Entropy of the tokens' own frequencies, nats a token: the best that a model can do which ignores all context."""
    counts = np.bincount(tokens_N)
    share = counts[counts > 0] / tokens_N.size
    return float(-(share * np.log(share)).sum())


def _files(root: Path) -> list[tuple[str, Path]]:
    named = ((path.relative_to(root), path) for path in root.rglob("*.py"))
    return [(name.as_posix(), path) for name, path in named if not _LEFT_OUT & set(name.parts)]


def _joined(texts: Sequence[bytes]) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(_BEFORE_EACH_FILE + text for text in texts), np.uint8)
