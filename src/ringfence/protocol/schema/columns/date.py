"""Dates, and points in time: numbers in a public unit, from a public origin."""

import datetime
import math
import re
from functools import cached_property
from typing import Annotated, Any, Literal, Self, TypeAlias

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.schema.columns.numeric import Scaled
from ringfence.sources.cells import Cells

_SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0, "week": 604800.0, "year": 31556952.0}
"""A year is 365.2425 days, the mean of the calendar's."""

_FORMAT = re.compile(r"(?:[^%]|%[dmYyHMSfjz%])*\Z")


def _as_text(value: object) -> object:
    """Turn a TOML date in a date column's fields into ISO 8601 text."""
    return value.isoformat() if isinstance(value, datetime.date) else value


Moment: TypeAlias = Annotated[str, BeforeValidator(_as_text)]
"""A date, or date and time, in ISO 8601; a TOML file may have it without quotes."""


class Date(Scaled):
    """A date, or date and time, between two; it becomes a number since `origin`, scaled as numbers are.

    It is `counted_in` days, unless the schema names another unit.

    Cells are as ISO 8601 writes them (2024-05-31, 2024-05-31T08:30), unless `format` says otherwise, in the letters of
    C's strptime: "%d.%m.%Y". A time that names its zone is read as UTC.
    """

    type: Literal["date"] = "date"
    lower: Moment
    upper: Moment
    counted_in: Literal["second", "minute", "hour", "day", "week", "year"] = "day"
    origin: Moment = "1970-01-01"
    format: str | None = Field(default=None, min_length=1, max_length=100)
    center: Moment | None = None
    missing: Moment | None = None

    @model_validator(mode="after")
    def _is_an_interval(self) -> Self:
        """Refuse a date column with an unknown format, a bound that is no date, or bounds out of order."""
        if self.format is not None and not _FORMAT.match(self.format):
            raise ValueError("format may hold %d %m %Y %y %H %M %S %f %j %z and %%, and any characters between them")
        for name in ("lower", "upper", "origin", "center", "missing"):
            said = getattr(self, name)
            if said is not None and math.isnan(seconds_of(said, None)):
                raise ValueError(f"{name} must be an ISO 8601 date, such as 2024-05-31")
        if not self.low < self.high:
            raise ValueError("lower must be before upper (type = 'ignore' drops a constant column)")
        self._require_values_inside()
        return self

    def number_of(self, value: Any) -> float:
        """Return the number that a date column counts for an ISO 8601 date."""
        number = self._number(value) if isinstance(value, str) else float(value)
        if math.isnan(number):
            raise ValueError("a value is not an ISO 8601 date, such as 2024-05-31")
        return number

    def _number(self, moment: str, format: str | None = None) -> float:
        """Return a moment as a date column counts it: in its unit, since its origin."""
        return (seconds_of(moment, format) - self._origin) / _SECONDS[self.counted_in]

    @cached_property
    def _origin(self) -> float:
        """The origin of a date column, in seconds since 1970."""
        return seconds_of(self.origin, None)

    @property
    def described(self) -> tuple[str, str]:
        """A date, and its bounds."""
        return "date", f"{self.lower} to {self.upper}"

    @property
    def problem(self) -> str:
        """What is wrong with a cell that is not a date."""
        if self.format is None:
            return "this is not an ISO 8601 date; state the dates' `format` in the schema"
        return "this date is not in the schema's `format`, which all silos share: rewrite it"

    def values(self, cells: Cells) -> FloatArray:
        """Return the time of each date since the origin."""
        times = cells.times()
        if times is not None:
            seconds = (times - np.datetime64(0, "us")) / np.timedelta64(1, "s")
            return (np.asarray(seconds, dtype=np.float64) - self._origin) / _SECONDS[self.counted_in]
        codes, distinct = cells.coded()
        return np.array([self._number(text, self.format) for text in distinct] or [0.0])[codes]

    @property
    def distance(self) -> str:
        """The unit in which a date column counts, such as days."""
        return f"{self.counted_in}s"

    @property
    def axis(self) -> str:
        """What the numbers of a date column count, and since when, for a figure's axis."""
        return f", in {self.distance} since {self.origin}"

    def written(self, center: float) -> str:
        """Return the date for a number, within the date column's bounds."""
        inside = min(max(center, self.low), self.high)
        moment = datetime.timedelta(seconds=self._origin + inside * _SECONDS[self.counted_in])
        return (_EPOCH + moment).date().isoformat()


def seconds_of(text: str, format: str | None) -> float:
    """Return a moment as seconds since 1970; NaN if the text is none."""
    try:
        moment = datetime.datetime.fromisoformat(text) if format is None else datetime.datetime.strptime(text, format)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        return (moment - _EPOCH) / datetime.timedelta(seconds=1)
    except (ValueError, OverflowError):
        return math.nan


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
