from pathlib import Path

import pytest
from PIL import Image

from octavo.cli.benchmarks.compare import COLUMNS, line_of
from octavo.evaluation.comparison.chart import Scale, draw_chart
from octavo.evaluation.comparison.markdown import markdown
from octavo.evaluation.comparison.pairs import Verdict
from octavo.evaluation.comparison.record import Choice, Conduct, Record, Skipped
from octavo.evaluation.comparison.results import Result


def result(ratios: tuple[float, ...], at_least: float | None = None) -> Result:
    return Result(
        "row", "A row", "output tok/s", "ours", "peer", 300.0, 100.0, Verdict(ratios, ("steal",)), at_least, "batch 8"
    )  # fmt: skip


def test_a_picture_of_the_ratios(tmp_path: Path) -> None:
    file = tmp_path / "chart.png"
    draw_chart([result((2.0, 3.0), 4.0), result(()), result((8.0,), 4.0)], file)
    with Image.open(file) as image:
        assert image.format == "PNG"
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 20) or []}
        height = image.height
    assert {(0x2A, 0x7F, 0x62), (0xB5, 0x65, 0x1D)} <= colours, (
        "one bar reaches its mark, one does not"
    )
    draw_chart([result((2.0, 3.0))], file)
    with Image.open(file) as image:
        assert image.height < height, "a result without pairs has no bar, every other one has"


def test_the_scale_holds_all_and_one() -> None:
    scale = Scale.over([2.0, 8.0])
    assert scale.low < 1.0 < 8.0 < scale.high
    assert scale.x(1.0) < scale.x(2.0) < scale.x(8.0)
    assert scale.x(4.0) - scale.x(2.0) == pytest.approx(scale.x(8.0) - scale.x(4.0))


@pytest.mark.parametrize(
    ("ratios", "at_least", "shown"),
    [
        ((2.0, 3.0, 4.0), 2.5, (3.0, "2 - 4", "2.5 yes", "3 of 4")),
        ((2.0,), 2.5, (2.0, "2 - 2", "2.5 no", "1 of 2")),
        ((), 2.5, (None, "-", "2.5", "0 of 1")),
        ((2.0,), None, (2.0, "2 - 2", "-", "1 of 2")),
    ],
)
def test_a_line_of_the_table(
    ratios: tuple[float, ...], at_least: float | None, shown: tuple[object, ...]
) -> None:
    line = line_of(result(ratios, at_least))
    assert len(line) == len(COLUMNS)
    assert line[-4:] == shown


def test_the_table_as_markdown() -> None:
    record = Record(
        Conduct("1.2", "a processor", 2, {}), versions={"peer": {"package": "3.4"}},
        choices=[Choice("row", "peer", (({"batch": "8"}, 61.3), ({"batch": "16"}, 50.0)), {"batch": "8"})],
        skipped=[Skipped("", "away", "no wheel")],
    )  # fmt: skip
    lines = markdown([result((2.0, 3.0), 2.0)], record).splitlines()
    assert lines[0] == "Octavo 1.2, a processor, 2 threads; peer: package 3.4."
    assert lines[2].count("|") == lines[3].count("|") == lines[4].count("|")
    assert (
        lines[4]
        == "| A row, output tok/s | ours | peer | 300 | 100 | 2.50 | 2 - 3 | 2 yes | 2 of 3 |"
    )
    assert lines[6:] == [
        "- row, ours / peer: batch 8",
        "- tried: row, peer with batch 8: 61.3",
        "- tried: row, peer with batch 16: 50.0",
        "- dropped: row, ours / peer: steal",
        "- skipped: all rows, away: no wheel",
    ]
