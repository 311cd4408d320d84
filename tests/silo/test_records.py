"""Records stay in the silo's process."""

import pickle

import pytest

from ringfence.errors import RecordsError
from ringfence.silo.records import Records


def test_records_show_no_value_and_cannot_be_pickled(records: Records) -> None:
    assert repr(records) == "<40 records of 4 features, values hidden>"
    with pytest.raises(RecordsError, match="stay in the silo"):
        pickle.dumps(records)
