"""Hashed n-grams of text: words, sequences of words and pieces of words, counted at places that their spelling decides.

Weinberger et al., "Feature Hashing for Large Scale Multitask Learning" (2009). Every term is hashed by BLAKE2b, which
is the same everywhere; its last bit decides the sign, so that terms which share a place cancel out on average, and the
rest the place. There is no dictionary, so no record has a say in one.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import RecordsError

LONGEST = 10
"""Words, or characters, of the longest term."""

_WORD = re.compile(r"\w+")
_SMALL = 1e-30
_OF_CHARACTERS = "\0"
"""Begins the terms of characters: no word has it, so that the piece "the" and the word "the" are two terms."""


@dataclass(frozen=True)
class NGrams:
    """Counts of a text's terms at `length` places, with signs, divided by their norm.

    Terms are sequences of 1 to `words` words, and pieces of 1 to `characters` characters, but of no fewer than 3, of
    each word with a space on either side; 0 stands for none of them. Words are letters, digits and underscores, in any
    case.

    Guarantees: a text's numbers depend on that text alone; their norm is 1, or 0 where there is no term; they are the
    same on every machine and in every version of Python, for characters that Unicode 14 has.
    """

    length: int = 4096
    words: int = 2
    characters: int = 0

    def __post_init__(self) -> None:
        """Refuse hashed n-grams with too few places or too long terms."""
        if self.length < 2 or not 0 <= self.words <= LONGEST or self.characters not in (0, *range(3, LONGEST + 1)):
            raise ValueError(
                f"Hashed n-grams need at least 2 places, 0 to {LONGEST} words, and 0 or 3 to {LONGEST} characters, "
                f"not {self.length} places, {self.words} words and {self.characters} characters."
            )
        if not (self.words or self.characters):
            raise ValueError("Hashed n-grams need words, characters or both: ask for at least one of them.")

    @property
    def name(self) -> str:
        """The n-gram extractor's name in a schema, which holds all its parameters."""
        return f"ngrams-{self.length}-{self.words}-{self.characters}"

    @property
    def digest(self) -> str:
        """The SHA-256 of the n-gram extractor's definition, which a schema names: its numbers never change."""
        return hashlib.sha256(f"ringfence.sources.features, definition 1: {self.name}".encode()).hexdigest()

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return a row of hashed n-gram features for every text."""
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise RecordsError(
                f"The extractor {self.name} takes a list of strings: replace empty cells with an empty string, and "
                "put a single string into a list."
            )
        counts = self.counts(texts)
        norms = np.sqrt(np.sum(counts * counts, axis=1, keepdims=True))
        result: NDArray[np.float32] = (counts / np.maximum(norms, _SMALL)).astype(np.float32)
        return result

    def counts(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return the signed n-gram counts themselves: whole numbers, not yet divided by their norm."""
        counts = np.zeros((len(texts), self.length))
        for row, text in enumerate(texts):
            for term in self._terms(text):
                drawn = _hash(term)
                counts[row, (drawn >> 1) % self.length] += 1.0 if drawn & 1 else -1.0
        return counts

    def _terms(self, text: str) -> Iterator[str]:
        """Yield the n-grams of a text: of words, and of characters within a word."""
        words = words_of(text)
        for size in range(1, self.words + 1):
            yield from (" ".join(words[at : at + size]) for at in range(len(words) - size + 1))
        for word in words if self.characters else ():
            spaced = f" {word} "
            for size in range(3, self.characters + 1):
                yield from (_OF_CHARACTERS + spaced[at : at + size] for at in range(len(spaced) - size + 1))


def words_of(text: str) -> list[str]:
    """Return the words of a text to take n-grams of, in lower case."""
    return _WORD.findall(text.casefold())


@lru_cache(maxsize=2**16)
def _hash(term: str) -> int:
    """Return 64 bits of a hash of an n-gram."""
    return int.from_bytes(hashlib.blake2b(term.encode(errors="surrogatepass"), digest_size=8).digest(), "little")
