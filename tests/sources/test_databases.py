"""Queries against real databases: what is read, in which order, and what is said when it cannot be."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import numpy as np
import pytest

from ringfence.errors import RegistryError
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import load_schema, parse_schema
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.operator.setup import create_folder, make_settings
from ringfence.silo.records.records import load_records
from ringfence.sources import read_table
from tests.silo.agents import approved, serving
from tests.sources import refusals
from tests.sources.postgresql import Cluster, running
from tests.sources.refusals import SECRET
from tests.support import vector

SCHEMA = """
columns.id = {type = "identifier"}
columns.age = {type = "numeric", lower = 0, upper = 120, missing = 50}
columns.cost = {type = "numeric", lower = 0, upper = 1000}
columns.seen = {type = "date", lower = 2020-01-01, upper = 2025-12-31}
columns.ill = {type = "boolean"}
"""

MAKE = """
CREATE TABLE visits (id integer, age integer, cost numeric(8, 2), seen date, ill boolean);
INSERT INTO visits
SELECT n, CASE WHEN n % 7 = 0 THEN NULL ELSE 20 + n % 60 END, n * 1.25, DATE '2021-01-01' + n, n % 3 = 0
FROM generate_series(1, 60) AS made(n) ORDER BY md5(n::text);
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running() as cluster:
        cluster.execute(MAKE)
        yield cluster


def described(folder: Path, database: str, query: str, order: str = "id") -> Path:
    file = folder / "clinic.toml"
    file.write_text(f'database = "{database}"\nquery = """{query}"""\norder_by = ["{order}"]\n')
    return file


def refusal(source: Path) -> str:
    columns = {"x": {"type": "numeric", "lower": 0, "upper": 1}, "y": {"type": "boolean"}}
    return refusals.refusal(source, parse_schema({"columns": columns}, target="y"))


@pytest.fixture
def schema_file(tmp_path: Path) -> Path:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return tmp_path / "schema.toml"


def test_postgresql_feeds_an_agent_and_a_changed_query_is_noticed(
    tmp_path: Path, schema_file: Path, cluster: Cluster
) -> None:
    source = described(tmp_path, cluster.address, "SELECT * FROM visits")
    settings = make_settings(name="clinic", data_file=str(source), schema_file=str(schema_file))
    folder = create_folder(tmp_path / "clinic", settings, Budget(2.0, 1e-6))
    schema = load_schema(schema_file, "ill")
    plan = make_plan(schema, [Member("clinic", 60, 1.0, 1e-6)], PlanRequest(rounds=3, survey=False))
    approved(folder, plan)
    with serving(folder) as served:
        answers = [served.ask(plan, round) for round in range(3)]
        assert all(vector(answer).shape == (plan.dimension,) for answer in answers)
        assert served.stop() == 0
    with folder.ledger() as ledger:
        assert folder.current_records(ledger).were_moved is False
        described(tmp_path, cluster.address, "SELECT * FROM visits WHERE id <= 50")
        with pytest.raises(RegistryError, match="there were 60, now there are 50"):
            folder.current_records(ledger)


def test_rows_of_a_query_have_the_order_of_their_key_whatever_the_database_does(
    tmp_path: Path, cluster: Cluster
) -> None:
    for order in ("age", "age DESC"):
        table = read_table(described(tmp_path, cluster.address, f"SELECT * FROM visits ORDER BY {order}"))
        np.testing.assert_array_equal(table["id"].numbers(), np.arange(1, 61))
        np.testing.assert_array_equal(table["cost"].numbers(), 1.25 * np.arange(1, 61))


def test_the_same_rows_have_the_same_marks_in_a_database_and_in_a_csv_file(
    tmp_path: Path, schema_file: Path, cluster: Cluster
) -> None:
    of = load_schema(schema_file, "ill")
    query = "SELECT id, age, cost, seen, CASE WHEN ill THEN 'true' ELSE 'false' END AS ill FROM visits"
    there = load_records(described(tmp_path, cluster.address, query), of)
    table = read_table(tmp_path / "clinic.toml")
    columns = [cells.texts() for cells in table.values()]
    (tmp_path / "clinic.csv").write_text("\n".join([",".join(table), *map(",".join, zip(*columns, strict=True))]))
    here = load_records(tmp_path / "clinic.csv", of)
    np.testing.assert_array_equal(there.features, here.features)
    assert there.marks is not None
    assert here.marks is not None
    assert there.marks.fingerprint(b"k" * 32).ordered == here.marks.fingerprint(b"k" * 32).ordered


def test_sqlite_and_duckdb_are_read_and_never_written(tmp_path: Path) -> None:
    import adbc_driver_sqlite.dbapi

    make = "CREATE TABLE t (id INTEGER, x DOUBLE, y TEXT); INSERT INTO t VALUES (2, 0.5, 'no'), (1, 0.25, 'yes')"
    with adbc_driver_sqlite.dbapi.connect(str(tmp_path / "t.db")) as connection, connection.cursor() as cursor:
        for statement in make.split(";"):
            cursor.execute(statement)
        connection.commit()
    with duckdb.connect(str(tmp_path / "t.duckdb")) as other:
        other.execute(make)
    for database in ("sqlite:t.db", "duckdb:t.duckdb"):
        table = read_table(described(tmp_path, database, "SELECT id, x, y FROM t"))
        found = {name: cells.texts() for name, cells in table.items()}
        assert found == {"id": ["1", "2"], "x": ["0.25", "0.5"], "y": ["yes", "no"]}
        assert "did not complete" in refusal(described(tmp_path, database, f"DELETE FROM t WHERE y = '{SECRET}'"))
        assert read_table(described(tmp_path, database, "SELECT id, x, y FROM t"))["id"].texts() == ["1", "2"]


def test_a_query_that_writes_is_wrong_or_dies_half_way_is_refused_in_one_sentence(
    tmp_path: Path, cluster: Cluster
) -> None:
    dies = (
        f"SELECT n AS id, CASE WHEN n = 50000 THEN pg_terminate_backend(pg_backend_pid())::text ELSE '{SECRET}' END "
        "AS x FROM generate_series(1, 100000) AS made(n)"
    )
    for query, says in [
        (f"INSERT INTO visits (id) VALUES (length('{SECRET}')) RETURNING id", "SQLSTATE 25006"),
        (f"SELECT {SECRET} FROM nowhere", "SQLSTATE"),
        (dies, "did not complete the query"),
        (f"SELECT id, ('{SECRET}' || id)::integer AS x FROM visits", "did not complete"),
        ("SELECT id, age FROM visits", "has no column 'x'"),
    ]:
        assert says in refusal(described(tmp_path, cluster.address, query))


WRITTEN = (
    "SELECT id FROM t;",
    "-- all\nSELECT id FROM t -- done",
    "WITH few AS (SELECT id FROM t) SELECT id FROM few",
    "SELECT id, '; ATTACH' AS x FROM t",
)


def left_alone(folder: Path, database: str, queries: list[str]) -> None:
    """Require that each query is refused, and no file read or made but the database's own."""
    (folder / "secret.csv").write_text(f"id,x\n1,{SECRET}\n")
    described(folder, database, "")
    before = {path.name for path in folder.iterdir()}
    for query in queries:
        said = refusal(described(folder, database, query))
        assert {path.name for path in folder.iterdir()} == before, query
        assert "is one SELECT that runs there" in said, query


def test_no_query_of_duckdb_reads_or_writes_another_file(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "t.duckdb")) as made:
        made.execute("CREATE TABLE t (id INTEGER); INSERT INTO t VALUES (1), (2)")
        (tmp_path / "secret.csv").write_text("id,x\n1,2\n")
        made.execute(f"CREATE VIEW elsewhere AS SELECT * FROM read_csv('{tmp_path}/secret.csv')")
    out, secret = tmp_path / "out", tmp_path / "secret.csv"
    queries = [
        f"COPY t TO '{out}'",
        f"COPY t TO '{out}'; SELECT 1 AS id",
        f"EXPORT DATABASE '{out}'",
        f"ATTACH '{out}' AS other; CREATE TABLE other.t AS SELECT 1 AS id; SELECT id FROM other.t",
        f"SELECT * FROM '{secret}'",
        f"SELECT 1 AS id, content AS x FROM read_text('{secret}')",
        "SELECT * FROM elsewhere",
        f"SET enable_external_access = true; SELECT * FROM '{secret}'",
        "SELECT 1 AS id; SELECT 2 AS id",
        "-- nothing",
    ]
    left_alone(tmp_path, "duckdb:t.duckdb", queries)
    for query in WRITTEN:
        assert read_table(described(tmp_path, "duckdb:t.duckdb", query))["id"].texts() == ["1", "2"]


def test_no_query_of_sqlite_reads_or_writes_another_file(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "t.db")) as made:
        made.executescript("CREATE TABLE t (id INTEGER); INSERT INTO t VALUES (1), (2)")
    out = tmp_path / "out"
    queries = [
        f"VACUUM INTO '{out}'",
        f"VACUUM INTO (SELECT '{out}')",
        f"ATTACH '{out}' AS other",
        f"ATTACH '{out}' AS other; CREATE TABLE other.t AS SELECT 1 AS id",
        "PRAGMA journal_mode = wal",
        "SELECT 1 AS id; SELECT 2 AS id",
        "EXPLAIN SELECT 1 AS id",
        "-- nothing",
    ]
    left_alone(tmp_path, "sqlite:t.db", queries)
    for query in WRITTEN:
        assert read_table(described(tmp_path, "sqlite:t.db", query))["id"].texts() == ["1", "2"]


def test_no_query_of_postgresql_runs_a_program_or_writes_a_file(tmp_path: Path, cluster: Cluster) -> None:
    with TemporaryDirectory(dir="/tmp") as made:
        out = Path(made)
        out.chmod(0o777)  # the server runs as another user, who may do all of this
        cluster.execute(f"COPY (SELECT 1) TO PROGRAM 'touch {out}/reached'")
        assert (out / "reached").exists()
        for number, query in enumerate(
            [
                "COPY (SELECT 1 AS id) TO PROGRAM 'touch {}'",
                "COPY (SELECT 1 AS id) TO '{}'",
                "COPY visits FROM PROGRAM 'touch {}'",
                "DO $$ BEGIN COPY (SELECT 1) TO PROGRAM 'touch {}'; END $$",
                "SELECT 1 AS id; COPY (SELECT 1) TO PROGRAM 'touch {}'",
                "SELECT 1 AS id) TO STDOUT; COPY (SELECT 1) TO PROGRAM 'touch {}'; COPY (SELECT 1 AS id",
                "COMMIT; COPY (SELECT 1) TO PROGRAM 'touch {}'",
                "EXPLAIN SELECT 1 AS id",
                "SET TRANSACTION READ WRITE",
                "SELECT set_config('transaction_read_only', 'off', true) AS id",
                "WITH new AS (INSERT INTO visits (id) VALUES (1) RETURNING id) SELECT id FROM new",
                "-- nothing",
            ]
        ):
            said = refusal(described(tmp_path, cluster.address, query.format(out / str(number))))
            assert [path.name for path in out.iterdir()] == ["reached"], query
            assert "is one SELECT that runs there" in said, query
    table = read_table(described(tmp_path, cluster.address, "WITH few AS (SELECT id FROM visits) SELECT id FROM few;"))
    assert len(table["id"]) == 60


def test_a_database_that_is_not_there_is_named_and_no_password_is_shown(tmp_path: Path) -> None:
    away = f"postgresql://clinic:{SECRET}@/postgres?host={tmp_path}"
    assert "Check that the database is running" in refusal(described(tmp_path, away, "SELECT 1 AS id"))
    assert "no database file" in refusal(described(tmp_path, "sqlite:absent.db", "SELECT 1 AS id"))
    assert "unknown kind of database" in refusal(described(tmp_path, "oracle:x", "SELECT 1 AS id"))


def test_what_orders_rows_must_tell_them_apart_and_be_nothing_that_a_model_reads(
    tmp_path: Path, cluster: Cluster
) -> None:
    for column, says in (("ill", "identify each row"), ("age", "has empty cells"), ("number", "returns no column")):
        assert says in refusal(described(tmp_path, cluster.address, "SELECT * FROM visits", column))
    read = refusal(described(tmp_path, cluster.address, "SELECT id AS x, ill AS y FROM visits", "x"))
    assert re.search("sorts rows by the column 'x'.*identifier", read)
    unsorted = described(tmp_path, cluster.address, "SELECT 1 AS id")
    unsorted.write_text('database = "sqlite:x.db"\nquery = "SELECT 1"\n')
    assert "order_by" in refusal(unsorted)
