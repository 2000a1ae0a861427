import pytest
import typer

from octavo.cli.numbers import parse_count, parse_length


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("4096", 4096),
        ("1k", 1000),
        ("1K", 1024),
        ("25.6k", 25_600),
        ("0.5m", 500_000),
        ("2G", 2 << 30),
        ("3t", 3 * 10**12),
        (" 16 ", 16),
    ],
)
def test_counts(text: str, value: int) -> None:
    assert parse_count(text) == value


@pytest.mark.parametrize(
    "text", ["", "k", "1.5", "25.6K", "1.2345k", "-1", "1e3", "1kb", "0x10", "٣"]
)
def test_what_is_not_a_count(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"whole number|suffix"):
        parse_count(text)


def test_a_length_may_be_left_open() -> None:
    assert parse_length("auto") is None
    assert parse_length("-1") is None
    assert parse_length("2k") == 2000
