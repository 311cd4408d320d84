"""What pyarrow reads: Parquet and Arrow files, blocks of CSV, and tables in memory."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet
from numpy.typing import NDArray

from ringfence.errors import RecordsError
from ringfence.sources.cells import ArrayCells, Cells, CodedCells, ListCells, TextCells
from ringfence.sources.csv_files import require_few
from ringfence.sources.description import refusing_damaged

ROWS = 2**15
"""How many rows of a query's result are worked on at a time."""

NUMBERS = 2**18
"""About how many cells of a Parquet file are read at a time, a column at least."""

_NO_TIME = int(np.datetime64("NaT").astype(np.int64))


def read_parquet(path: Path) -> Iterator[Mapping[str, Cells]]:
    """Yield a Parquet file's columns, a group of rows at a time; each is read when it is asked for."""
    with _refusing(path, "Parquet"):
        metadata = pyarrow.parquet.read_metadata(path)
        schema = metadata.schema.to_arrow_schema()
        yield no_rows(schema.names, path, str(path))
        texts = [field.name for field in schema if _is_text(field.type)]
        with pyarrow.parquet.ParquetFile(
            path, metadata=metadata, read_dictionary=texts, pre_buffer=False, page_checksum_verification=True
        ) as file:
            for group in range(file.num_row_groups):
                yield _RowGroup(file, group, path)


def parquet_rows(path: Path) -> int:
    """Return how many rows a Parquet file says that it has."""
    with _refusing(path, "Parquet"):
        return int(pyarrow.parquet.read_metadata(path).num_rows)


class _RowGroup(Mapping[str, Cells]):
    """A group of rows of a Parquet file: memory holds no more than the columns that were read last."""

    def __init__(self, file: Any, group: int, path: Path) -> None:
        """Prepare to read the columns of one row group of a Parquet file."""
        self._file, self._group, self._path = file, group, path
        self._names: list[str] = file.schema_arrow.names
        self._places = {name: place for place, name in enumerate(self._names)}
        self._at_once = max(1, NUMBERS // max(1, file.metadata.row_group(group).num_rows))
        self._held: dict[str, Cells] = {}

    def __len__(self) -> int:
        """Return the number of columns of a Parquet row group."""
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of columns of a Parquet row group."""
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        """Return whether a Parquet row group has a column of that name, without reading it."""
        return name in self._places

    def __getitem__(self, name: str) -> Cells:
        """Read a column of a Parquet row group, together with its neighbours."""
        if name not in self._held:
            begin = self._places[name]
            names = self._names[begin : begin + self._at_once]
            self._held = {}
            with _refusing(self._path, "Parquet"):
                table = self._file.read_row_group(self._group, columns=names, use_threads=False)
                self._held = {each: cells_of(table.column(each)) for each in names}
        return self._held[name]


def read_ipc(path: Path) -> Iterator[dict[str, Cells]]:
    """Yield the columns of an Arrow file, or stream, some rows at a time."""
    with _refusing(path, "Arrow"), pa.memory_map(str(path)) as mapped:
        if mapped.read(6) == b"ARROW1":
            file = pyarrow.ipc.open_file(mapped)
            batches = (file.get_batch(number) for number in range(file.num_record_batches))
        else:
            mapped.seek(0)
            file = batches = pyarrow.ipc.open_stream(mapped)
        yield no_rows(file.schema.names, path, str(path))
        for batch in batches:
            batch.validate(full=True)
            yield columns_of(batch)


def _refusing(path: Path, kind: str) -> AbstractContextManager[None]:
    """Turn pyarrow's errors about a Parquet or Arrow file into one sentence."""
    remedy = f"or is not a {kind} file: make it again from its source"
    return refusing_damaged(path, remedy, pa.ArrowException, ValueError, MemoryError)


def no_rows(names: Sequence[str], path: Path, source: str) -> dict[str, Cells]:
    """Return Arrow columns without cells; RecordsError if there are too many, or if a name is empty or occurs twice."""
    require_few(path, len(names))
    if len(set(names)) != len(names) or not all(name and name.strip() == name for name in names):
        raise RecordsError(f"{source} has a column without a plain name, or two of the same name: rename them.")
    return {name: TextCells([]) for name in names}


def columns_of(table: Any) -> dict[str, Cells]:
    """Return the columns of an Arrow table or a batch of rows."""
    return {name: cells_of(column) for name, column in zip(table.schema.names, table.columns, strict=True)}


def cells_of(column: Any) -> Cells:
    """Return an Arrow column's cells."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    kind = column.type
    if pa.types.is_decimal(kind):
        column, kind = pc.cast(column, pa.float64(), safe=False), pa.float64()
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return _numbers(column)
    if pa.types.is_temporal(kind):
        return _times(column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists(column)
    if pa.types.is_null(kind):
        return CodedCells(np.zeros(len(column), dtype=np.int32), [""])
    if pa.types.is_dictionary(kind) and not _is_text(kind.value_type):
        return cells_of(column.dictionary_decode())
    if _is_text(kind) or pa.types.is_dictionary(kind):
        return _texts(column)
    return _odd(column, "bytes" if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else "nested fields")


def _is_text(kind: Any) -> bool:
    """Tell whether an Arrow type is one of its types of strings."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _numbers(column: Any) -> Cells:
    """Return the cells of an Arrow column of numbers or truth values."""
    return ArrayCells(_array(column), _array(column.is_null()) if column.null_count else None)


def _array(column: Any, null: int = 0) -> NDArray[Any]:
    """Return an Arrow column of numbers or truth values as an array, where pyarrow's own ways would load pandas."""
    is_boolean = pa.types.is_boolean(column.type)
    plain = pa.Array.from_buffers(column.type, len(column), [None, column.buffers()[1]], offset=column.offset)
    values = np.from_dlpack(plain.cast(pa.uint8()) if is_boolean else plain)
    if column.null_count:
        values = np.where(_array(column.is_null()), null, values)
    return values.view(np.bool_) if is_boolean else values


def _times(column: Any) -> Cells:
    """Return the cells of an Arrow column of dates or times."""
    kind = column.type
    if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        return _texts(pc.cast(column, pa.string()))
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = pc.cast(column, pa.timestamp(kind.unit))
    column = pc.cast(column, pa.timestamp("us"), safe=False).view(pa.int64())
    return ArrayCells(_array(column, _NO_TIME).view("datetime64[us]"))


def _lists(column: Any) -> Cells:
    """Return the cells of an Arrow column of lists: vectors, if they hold numbers."""
    values = column.type.value_type
    if not (pa.types.is_integer(values) or pa.types.is_floating(values)):
        return _odd(column, "lists of something other than numbers")
    lengths = pc.list_value_length(column)
    if len(column) and not column.null_count and pc.min_max(lengths)["min"] == pc.min_max(lengths)["max"]:
        flat = pc.list_flatten(column)
        if not flat.null_count:
            return ArrayCells(_array(flat).reshape(len(column), -1))
    return ListCells(column.to_pylist())


def _texts(column: Any, *, comma: bool = False) -> CodedCells:
    """Return the cells of an Arrow column of strings, by a dictionary of its distinct texts."""
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    distinct = [(text or "").strip() for text in coded.dictionary.to_pylist()]
    codes = _array(coded.indices, null=len(distinct))
    if coded.indices.null_count:
        distinct.append("")
    return CodedCells(codes, distinct or [""], comma=comma)


def _odd(column: Any, what: str) -> Cells:
    """Return an Arrow column of an unsupported type as texts, marked as odd."""
    cells = TextCells(["" if value is None else repr(value) for value in column.to_pylist()])
    cells.odd = what
    return cells


_SMALL = 2**20


def read_csv_block(
    block: bytes, names: list[str], delimiter: str, numbers: Collection[str], *, comma: bool, either: bool
) -> dict[str, Cells] | None:
    """Read lines of a CSV file; None if any of them needs a closer look, which the standard library takes.

    `comma` says that this is the decimal mark, `either` that it may be a point as well.
    """
    texts = pa.dictionary(pa.int32(), pa.string())
    kept = set() if either else set(numbers)
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(block),
            read_options=pyarrow.csv.ReadOptions(
                column_names=names,
                block_size=max(_SMALL, len(block) // 8),
                # A small table gains nothing by threads, which Arrow may still have at the process's end and abort.
                use_threads=len(block) > _SMALL,
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=b'"' in block, ignore_empty_lines=False
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={name: pa.float64() if name in kept else texts for name in names},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
                decimal_point="," if comma else ".",
            ),
        )
    except (pa.ArrowException, ValueError):
        return None
    if all(column.null_count for column in table.columns):
        return None  # there may be a blank line among the rows
    found: dict[str, Cells] = {}
    for name, column in zip(names, table.columns, strict=True):
        if name in kept:
            cells = cells_of(column)
            if int(np.count_nonzero(np.isnan(cells.numbers()))) != column.null_count:
                return None  # a cell that says "nan" is not an empty one
            found[name] = cells
        else:
            found[name] = _texts(column.unify_dictionaries().combine_chunks(), comma=comma)
    return found
