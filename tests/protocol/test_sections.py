"""Folds go by a record's number alone."""

import numpy as np

from ringfence.protocol.plan import sections


def test_every_record_is_in_one_of_the_folds_and_folds_differ_by_one_record_at_most() -> None:
    for records in (5, 11, 1000):
        counts = np.bincount(sections.folds(records, 5), minlength=5)
        assert counts.sum() == records
        assert counts.max() - counts.min() <= 1


def test_folds_are_the_same_each_time_and_do_not_follow_the_order_of_the_records() -> None:
    """In sorted records, neighbours in one fold would leave a range of targets out.

    Of 1000 records dealt at random into five folds, one has 60 or more of the first 100 with probability below 1e-15.
    """
    fold = sections.folds(1000, 5)
    assert np.array_equal(fold, sections.folds(1000, 5))
    assert np.bincount(fold[:100]).max() < 60
