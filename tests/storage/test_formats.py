"""A document of a later version is refused in a sentence that says what to do."""

import pytest

from ringfence.errors import MessageError, RingfenceError
from ringfence.storage.formats import require_known_format


@pytest.mark.parametrize("stated", [None, 0, 1, 2, -1, "3", 2.5, [3]])
def test_what_is_known_and_what_is_no_number_is_let_pass(stated: object) -> None:
    """Whoever reads the document says what is wrong with a format that is no number."""
    require_known_format("letter", stated, 2, RingfenceError)


@pytest.mark.parametrize(("stated", "told"), [(3, "3"), (4, "4"), (10**30, "of many digits")])
def test_a_newer_format_is_refused(stated: int, told: str) -> None:
    with pytest.raises(MessageError) as refused:
        require_known_format("letter", stated, 2, MessageError)
    assert str(refused.value) == (
        f"This letter has format {told}, and this version of Ringfence reads formats up to 2: install a newer "
        "version of Ringfence to read it."
    )
