"""Rows of a table by the values of some columns: one whole number per distinct combination."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd


def codes_of(rows: pd.DataFrame, columns: Sequence[str]) -> NDArray[np.int64]:
    """One whole number per row, equal where all the columns are equal, from 0 without gaps."""
    import pandas as pd

    code = np.zeros(len(rows), np.int64)
    for name in columns:
        values, found = pd.factorize(rows[name])
        code = pd.factorize(code * max(len(found), 1) + values)[0].astype(np.int64)
    return code
