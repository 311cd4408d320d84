"""Databases: the result of one query, whose text stays with the silo, sorted by columns that identify the rows.

Nothing of what a driver says is shown: it may quote a cell, or a password. A query is one SELECT, as the database's own
parser reads it, in a transaction that only reads: some other statements read or write files even there.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ringfence.errors import RecordsError
from ringfence.sources.cells import Cells
from ringfence.sources.description import Description


def read(described: Description) -> Iterator[dict[str, Cells]]:
    """Yield the columns of a database query's result, some rows at a time."""
    from ringfence.sources import arrow_files

    table = _sorted(_fetched(described), described)
    yield arrow_files.no_rows(table.schema.names, described.named, f"The query of {described.named}")
    for batch in table.to_batches(max_chunksize=arrow_files.ROWS):
        yield arrow_files.columns_of(batch)


def _fetched(described: Description) -> Any:
    """Run the described query in its database, and return the result as an Arrow table."""
    kind, _, place = (described.database or "").partition(":")
    if kind not in _KINDS:
        raise RecordsError(
            f'The description {described.named} names an unknown kind of database: write "postgresql://…", '
            '"sqlite:FILE" or "duckdb:FILE".'
        )
    statement = described.statement()
    try:
        return _KINDS[kind](described, place, statement)
    except ImportError:
        raise RecordsError(
            f'Reading from {kind} needs packages that are not installed: pip install "ringfence[data]".'
        ) from None
    except RecordsError:
        raise
    except Exception as problem:  # drivers have errors of their own, and more of them than they say
        code = getattr(problem, "sqlstate", None)
        shown = f" (SQLSTATE {code})" if isinstance(code, str) and code.isalnum() else ""
        raise RecordsError(
            f"The database of {described.named} did not complete the query{shown}. Nothing was read. Check that the "
            "database is running, that this user may read what the query names, and that the query is one SELECT that "
            "runs there on its own."
        ) from None


def _of_postgresql(described: Description, place: str, statement: str) -> Any:
    """Run a query in a PostgreSQL database, in a read-only transaction; PREPARE takes no COPY, DO or CALL."""
    import adbc_driver_postgresql.dbapi as driver

    with driver.connect(f"postgresql:{place}") as connection, connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
        cursor.execute(f"PREPARE ringfence AS {statement}")
        cursor.execute(statement)
        return cursor.fetch_arrow_table()


def _of_sqlite(described: Description, place: str, statement: str) -> Any:
    """Run a query in an SQLite database file, opened read-only; a view takes no ATTACH, VACUUM or PRAGMA."""
    import sqlite3

    import adbc_driver_sqlite.dbapi as driver

    path = _database_file(described, place)
    with closing(sqlite3.connect(":memory:")) as empty:
        empty.execute(f"CREATE VIEW ringfence AS {statement}")  # what it names is looked up later
    with driver.connect(f"file:{quote(str(path))}?mode=ro") as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetch_arrow_table()


def _of_duckdb(described: Description, place: str, statement: str) -> Any:
    """Run a query in a DuckDB database file, opened read-only, with access to no other file."""
    import duckdb

    with duckdb.connect(str(_database_file(described, place)), read_only=True) as connection:
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        if [each.type for each in connection.extract_statements(statement)] != [duckdb.StatementType.SELECT]:
            raise ValueError
        return connection.sql(statement).to_arrow_table()


_KINDS: Mapping[str, Callable[[Description, str, str], Any]] = {
    "postgresql": _of_postgresql,
    "sqlite": _of_sqlite,
    "duckdb": _of_duckdb,
}


def _database_file(described: Description, place: str) -> Path:
    """Return the path of a database file beside its description; RecordsError if there is none."""
    path = described.named.parent / place
    if not path.is_file():
        raise RecordsError(f"There is no database file {path}: correct `database` in the description.")
    return path


def _sorted(table: Any, described: Description) -> Any:
    """Sort rows of a database's result by the columns that identify them, since a database has no order."""
    for name in described.order_by:
        if name not in table.schema.names:
            raise RecordsError(
                f"The query of {described.named} returns no column '{name}', which `order_by` names: select it."
            )
    order = list(described.order_by)
    keys = table.select(order)
    if any(column.null_count for column in keys.columns):
        raise RecordsError(
            f"A column that `order_by` of {described.named} names has empty cells: sort by one that is filled in for "
            "every row."
        )
    if keys.group_by(order).aggregate([]).num_rows != table.num_rows:
        raise RecordsError(
            f"Two rows agree in all columns that `order_by` of {described.named} names, so their order is undefined: "
            "name columns that together identify each row."
        )
    return table.sort_by([(name, "ascending") for name in order])
