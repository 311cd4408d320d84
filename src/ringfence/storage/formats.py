"""Format numbers: how a document of a later version is refused. `docs/compatibility.md` states the rules."""

from ringfence.errors import RingfenceError


def require_known_format(name: str, stated: object, newest: int, error: type[RingfenceError]) -> None:
    """Refuse a document of a later version's format, and say what to do about it; anything but a number is let pass."""
    if isinstance(stated, int) and stated > newest:
        number = str(stated) if stated < 10**9 else "of many digits"  # nobody's document, and maybe a very long number
        raise error(
            f"This {name} has format {number}, and this version of Ringfence reads formats up to {newest}: install a "
            "newer version of Ringfence to read it."
        )
