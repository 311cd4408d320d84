"""A guarantee says against whom it holds, and what holds against anyone holds against each."""

import itertools
import math
from typing import get_args

import pytest
from pydantic import ValidationError

from ringfence.protocol import Channel, Guarantee, against_words, observers_of
from ringfence.protocol.plan.guarantee import OBSERVERS, against

SERVER = Guarantee(epsilon=1.0, delta=1e-6, against="server")
ANYONE = Guarantee(epsilon=3.0, delta=1e-6)


def test_the_guarantee_against_an_observer_is_the_one_that_names_it() -> None:
    for guarantees in itertools.permutations((SERVER, ANYONE)):
        assert against(guarantees, "server") is SERVER
        assert against(guarantees, "anyone") is ANYONE


def test_what_holds_against_anyone_stands_in_for_every_observer_and_for_nothing_else() -> None:
    for observer in OBSERVERS:
        assert against([ANYONE], observer) is ANYONE
    with pytest.raises(KeyError):
        against([SERVER], "anyone")


def test_observers_are_named_once_each_and_the_one_that_counts_first() -> None:
    assert observers_of() == ()
    assert observers_of(["anyone"]) == ("anyone",)
    assert observers_of(["anyone"], ["anyone", "server"], ["anyone"]) == ("server", "anyone")
    assert observers_of(["server"]) == ("server",)


def test_every_observer_has_its_words_and_every_channel_protects_against_anyone() -> None:
    phrases = {against_words(observer, number) for observer in OBSERVERS for number in (None, 0, 1, 2)}
    assert len(phrases) == 5
    assert all(phrase.startswith("against ") for phrase in phrases)
    channels = get_args(get_args(Channel)[0])
    assert len(channels) == 2
    for channel in channels:
        assert channel.observers[-1] == "anyone"
        assert observers_of(channel.observers) == channel.observers


def test_an_epsilon_that_is_no_number_is_refused_and_infinity_says_that_nothing_is_proved() -> None:
    with pytest.raises(ValidationError):
        Guarantee(epsilon=math.nan, delta=1e-6)
    assert Guarantee(epsilon=math.inf, delta=1e-6).epsilon == math.inf
