"""Streamed equals unstreamed, for every pair of options; the outcomes are a page of the documentation."""

from pathlib import Path

from support.matrix_servers import outcomes
from support.option_matrix import page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "options.md"


def test_every_pair_is_equal_or_refused_by_name(tmp_path: Path) -> None:
    assert PAGE.read_text() == page(outcomes(tmp_path / "tiny"))
