"""Numbers as vLLM's flags take them: 1k is 1000, 1K is 1024."""

import re
from decimal import Decimal

import typer

_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_COUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kmgtKMGT]?)")


def parse_count(text: str | int) -> int:
    """A whole number with an optional suffix; `25.6k` is fine, a fraction of a binary unit is not."""
    if isinstance(text, int):  # a default passes through the parser too
        return text
    match = _COUNT.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(
            f"{text!r} is not a whole number, as in 4096, 4k (4000) or 4K (4096)"
        )
    number, suffix = Decimal(match[1]), match[2]
    if "." in match[1] and suffix not in _DECIMAL:
        raise typer.BadParameter(f"{text!r}: a fraction needs a suffix k, m, g or t (25.6k)")
    value = number * (_DECIMAL | _BINARY).get(suffix, 1)
    if value != int(value):
        raise typer.BadParameter(f"{text!r} is not a whole number")
    return int(value)


def parse_gib(text: str | int) -> int:
    """Bytes: GiB as vLLM takes them (4, 0.5), or a count with a suffix (512M)."""
    if isinstance(text, int):
        return text
    if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", text.strip()):
        return int(Decimal(text.strip()) * (1 << 30))
    return parse_count(text)


def parse_length(text: str | int) -> int | None:
    """As `parse_count`; `auto` and -1 leave the choice to Octavo."""
    return None if str(text).strip() in ("auto", "-1") else parse_count(text)
