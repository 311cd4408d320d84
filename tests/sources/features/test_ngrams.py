"""Hashed n-grams: a function of one text alone, the same everywhere, of known counts."""

import numpy as np
import pytest

from ringfence.errors import RecordsError
from ringfence.protocol import Text
from ringfence.sources.cells import TextCells
from ringfence.sources.features import NGrams

TEXTS = ["Chest pain, since Monday", "pain", "", "No pain; no fever — NO cough", "Größe 1,80 m"]


def test_a_text_s_numbers_are_the_same_on_every_machine() -> None:
    """The places and signs that BLAKE2b gives, written down once."""
    counts = NGrams(length=16, words=1).counts(["pain fever"])[0]
    assert {int(place): counts[place] for place in np.flatnonzero(counts)} == {1: 1, 3: -1}
    counts = NGrams(length=64, words=0, characters=3).counts(["pain"])[0]  # " pa", "pai", "ain", "in "
    assert {int(place): counts[place] for place in np.flatnonzero(counts)} == {2: -1, 51: -1, 56: 2}


def test_a_text_has_norm_1_or_no_words_and_does_not_depend_on_what_is_beside_it() -> None:
    extract = NGrams(length=128, words=2, characters=5)
    together = extract(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), [1, 1, 0, 1, 1], rtol=1e-6)
    np.testing.assert_array_equal(np.concatenate([extract([text]) for text in TEXTS]), together)
    assert extract([]).shape == (0, 128)


def test_words_of_any_case_and_punctuation_are_the_same() -> None:
    extract = NGrams(length=64, words=2, characters=3)
    np.testing.assert_array_equal(extract(["Chest PAIN"]), extract(["chest... pain!"]))


def test_word_terms_are_those_of_a_text_column() -> None:
    """One way to hash words: a text column has the numbers of the extractor with its words and sequences."""
    for longest in (1, 2, 3):
        reading, _ = Text(words=64, ngrams=longest).read(TextCells(TEXTS))
        np.testing.assert_allclose(NGrams(length=64, words=longest)(TEXTS), reading.values, rtol=1e-6)


def test_a_piece_of_a_word_is_another_term_than_the_word() -> None:
    """Without words, every term of "abc" is a piece of " abc "; with characters up to 3 there are three of them."""
    pieces = NGrams(length=2**16, words=0, characters=3).counts(["abc"])[0]
    assert np.sum(np.abs(pieces)) == 3
    word = NGrams(length=2**16, words=1).counts(["abc"])[0]
    assert np.flatnonzero(word)[0] not in np.flatnonzero(pieces)


def test_the_digest_tells_extractors_apart() -> None:
    made = [NGrams(), NGrams(length=512), NGrams(words=1), NGrams(characters=3)]
    assert len({own.digest for own in made}) == len({own.name for own in made}) == 4
    assert NGrams().digest == NGrams(4096, 2, 0).digest


def test_what_is_no_list_of_texts_is_refused_with_the_remedy() -> None:
    for wrong in ("one text", ["a", None], [1.0]):
        with pytest.raises(RecordsError, match="put a single string into a list"):
            NGrams()(wrong)  # type: ignore[arg-type]
    for parameters in ({"length": 1}, {"words": 11}, {"characters": 2}, {"words": 0}):
        with pytest.raises(ValueError, match="Hashed n-grams"):
            NGrams(**parameters)
