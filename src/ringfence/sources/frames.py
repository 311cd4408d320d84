"""Tables in memory: of pandas, polars and pyarrow, or of cells."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringfence.sources.cells import ArrayCells, Cells, ListCells, TextCells, number_text


@dataclass(frozen=True, repr=False)
class CellTable:
    """Columns of cells that were made in memory, such as the arguments of an estimator's `fit`.

    Rows are recognised in another table by the cells in `identity`. Messages call the table `name`, but for the columns
    that `origins` names.
    """

    columns: Mapping[str, Cells]
    identity: Mapping[str, Cells]
    name: str
    origins: Mapping[str, str]

    def __len__(self) -> int:
        """Return the number of rows of a table of cells that was made in memory."""
        return len(next(iter(self.columns.values())))


def is_pandas(table: Any) -> bool:
    """Tell whether this is a table of pandas, or one that acts like it."""
    return hasattr(table, "columns") and hasattr(table, "iloc")


def is_arrow_like(table: Any) -> bool:
    """Tell whether this is a table of pyarrow or polars."""
    return hasattr(table, "__arrow_c_stream__") and not is_pandas(table) and hasattr(table, "columns")


def columns_of(table: Any) -> Mapping[str, Cells]:
    """Return the columns of a table in memory: a data frame of pandas, polars or pyarrow."""
    if isinstance(table, CellTable):
        return table.columns
    if is_arrow_like(table):
        import pyarrow as pa

        from ringfence.sources import arrow_files

        return arrow_files.columns_of(pa.table(table))
    return {str(name): pandas_cells(table[name]) for name in table.columns}


def pandas_cells(column: Any) -> Cells:
    """Return the cells of a column of pandas: the text cells that a CSV file would have, unless they are vectors."""
    if column.dtype.kind in "biufM" and isinstance(column.dtype, np.dtype):
        return ArrayCells(column.to_numpy())
    values = list(column)
    if any(isinstance(value, list | tuple | np.ndarray) for value in values):
        return ListCells([None if is_missing(value) else np.asarray(value).tolist() for value in values])
    return TextCells([text(value) for value in values])


def is_missing(value: Any) -> bool:
    """Tell whether a value of a data frame is missing: None, NaN, NA or NaT."""
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def text(value: Any) -> str:
    """Return a value of a data frame as a text cell; a missing value becomes an empty one."""
    if is_missing(value):
        return ""
    if isinstance(value, list | tuple | np.ndarray):
        return repr(np.asarray(value).tolist())
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return number_text(float(value))  # pandas makes 1.0 of 1 where a column has gaps, and "1" is the category
    return str(value).strip()
