"""Records stay in the silo's process."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.errors import RecordsError
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.effort import LEAST_AT_ONCE
from ringfence.protocol.schema import load_schema
from ringfence.silo.records import Records, load_records
from tests.silo.agents import SCHEMA


def test_records_show_no_value_and_cannot_be_pickled(records: Records) -> None:
    assert repr(records) == "<40 records of 4 features, values hidden>"
    with pytest.raises(RecordsError, match="stay in the silo"):
        pickle.dumps(records)


@pytest.mark.parametrize("rows", [3, 3 * LEAST_AT_ONCE])
def test_a_question_is_given_nothing_of_what_was_clamped_in_one_part_or_in_many(tmp_path: Path, rows: int) -> None:
    """To pick it out takes a time that tells whether any record lies beyond its bounds."""
    (tmp_path / "schema.toml").write_text(SCHEMA)
    (tmp_path / "a.csv").write_text("a,b,c,ill\n0.1,0.2,99.0,yes\n" + "0.3,0.2,0.1,no\n" * (rows - 1))
    records = load_records(tmp_path / "a.csv", load_schema(tmp_path / "schema.toml", "ill"))
    assert records.cells is not None
    assert records.cells["c"].beyond is not None
    lengths = []

    def add_up(some: Records, chosen: FloatArray) -> Any:
        assert some.cells is not None
        assert [reading.beyond for reading in some.cells.values()] == [None] * len(some.cells)
        lengths.append(len(some))
        return np.array([int(chosen.sum())], dtype=object)

    assert records.total(add_up, np.ones(rows), 10**6).tolist() == [rows]
    assert (len(lengths) > 1) == (rows > LEAST_AT_ONCE)
