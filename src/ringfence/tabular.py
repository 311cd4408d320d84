"""Files of predictions: CSV, and Parquet with the extra `data`."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ringfence.errors import OutputError

PARQUET = ".parquet"


def write_table(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write columns as a CSV or a Parquet file, by the file name's extension."""
    try:
        if path.suffix == PARQUET:
            arrow = _arrow()
            arrow.parquet.write_table(arrow.table({name: list(values) for name, values in columns.items()}), path)
        else:
            path.write_text(csv_text(columns), encoding="utf-8")
    except OSError as problem:
        raise OutputError(f"{path} could not be written: {problem.strerror}. Name another file.") from None


def csv_text(columns: Mapping[str, Sequence[Any]]) -> str:
    """Return columns as CSV: a line of names, and a line per row; numbers to their last digit."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(columns)
    rows.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()


def _arrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise OutputError(
            'Parquet files need pyarrow, which is not installed: pip install "ringfence[data]".'
        ) from None
    return pyarrow
