"""A picture of the ratios: a bar for each, the range of its pairs, and what is wanted."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import ConfigError
from octavo.evaluation.comparison.results import Result

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

WIDTH, LEFT, RIGHT, TOP, LINE = 1200, 560, 110, 90, 34
_TEXT, _FAINT, _REACHED, _OPEN = "#222222", "#cccccc", "#2a7f62", "#b5651d"
_TICKS = (0.5, 1, 2, 5, 10, 20, 50, 100, 200)
_MARGIN = 1.25


def check_chart_library() -> None:
    """Raise ConfigError, which says what to install, if no picture can be drawn."""
    try:
        import PIL.Image  # noqa: F401  # in the extra `bench`
    except ImportError as error:
        raise ConfigError("a chart needs Pillow: pip install 'octavo[bench]'") from error


def draw_chart(results: Sequence[Result], file: Path) -> None:
    """Write a PNG, ratios on a logarithmic scale. Those without a pair that counts are left out."""
    from PIL import Image, ImageDraw, ImageFont

    shown = [result for result in results if result.verdict.ratios]
    image = Image.new("RGB", (WIDTH, TOP + LINE * len(shown) + 50), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(15)
    draw.text((20, 20), "How many times better Octavo is", _TEXT, ImageFont.load_default(22))
    draw.text((20, 52), "bar: median of the pairs; line: their range; mark: wanted", _TEXT, font)
    scale = Scale.over([*(ratio for r in shown for ratio in r.verdict.ratios), *_goals(shown)])
    bottom = TOP + LINE * len(shown)
    for tick in _TICKS:
        if scale.low <= tick <= scale.high:
            x = scale.x(tick)
            draw.line((x, TOP, x, bottom), _TEXT if tick == 1 else _FAINT)
            draw.text((x, bottom + 8), f"{tick:g}x", _TEXT, font, anchor="ma")
    for i, result in enumerate(shown):
        _draw_bar(draw, font, scale, result, TOP + LINE * i)
    image.save(file)


class Scale:
    """Ratios to places from left to right, logarithmic."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    @staticmethod
    def over(values: Sequence[float]) -> "Scale":
        """Wide enough for all of these and for 1."""
        return Scale(min((1.0, *values)) / _MARGIN, max((1.0, *values)) * _MARGIN)

    def x(self, ratio: float) -> float:
        """In pixels."""
        share = math.log(ratio / self.low) / math.log(self.high / self.low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)


def _goals(results: Sequence[Result]) -> list[float]:
    return [result.at_least for result in results if result.at_least is not None]


def _draw_bar(
    draw: "ImageDraw", font: "FreeTypeFont | ImageFont", scale: Scale, result: Result, y: int
) -> None:
    ratios, median = result.verdict.ratios, result.verdict.median
    assert median is not None
    name = f"{result.row}, {result.figure}: {result.ours} / {result.peer}"
    draw.text((LEFT - 12, y + LINE // 2), name, _TEXT, font, anchor="rm")
    left, right = sorted((scale.x(1.0), scale.x(median)))
    colour = _OPEN if result.is_reached is False else _REACHED
    draw.rectangle((left, y + 7, right, y + LINE - 7), colour)
    middle = y + LINE // 2
    draw.line((scale.x(min(ratios)), middle, scale.x(max(ratios)), middle), _TEXT, 2)
    if result.at_least is not None:
        x = scale.x(result.at_least)
        draw.line((x, y + 3, x, y + LINE - 3), _TEXT, 3)
    end = scale.x(max(*ratios, median, result.at_least or 0.0))
    draw.text((end + 8, middle), f"{median:.2f}x", _TEXT, font, anchor="lm")
