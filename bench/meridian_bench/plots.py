"""The report's plots, as SVG written by hand: readable in a browser, no plotting library needed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from .contenders import CARDS

WIDTH = 860
LEFT, RIGHT = 90, 30
BAR, GAP = 13, 10
# One colour a contender, told apart by the colour-blind too (Okabe and Ito, with black, a grey and an olive).
COLOURS = dict(
    zip(
        CARDS,
        ["#d55e00", "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#000000", "#777777", "#b0a000"],
        strict=True,
    )
)


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 12, weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}">'
        f"{escape(text)}</text>"
    )


def _document(height: float, parts: Sequence[str]) -> str:
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}"'
        f' height="{height:.0f}" font-family="sans-serif">'
    )
    return "\n".join([opening, f'<rect width="{WIDTH}" height="{height:.0f}" fill="white"/>', *parts, "</svg>\n"])


def _legend(names: Sequence[str], y: float) -> Iterator[str]:
    x = float(LEFT)
    for name in names:
        yield f'<rect x="{x:.1f}" y="{y - 10:.1f}" width="12" height="12" fill="{COLOURS[name]}"/>'
        yield _text(x + 16, y, CARDS[name].title)
        x += 34 + 7 * len(CARDS[name].title)


class LogScale:
    """Positions on a logarithmic axis from one power of ten to another."""

    def __init__(self, values: Sequence[float]) -> None:
        positive = [value for value in values if value > 0] or [1.0]
        self.low = math.floor(math.log10(min(positive)))
        self.high = max(self.low + 1, math.ceil(math.log10(max(positive))))

    def at(self, value: float) -> float:
        """Where a value is, in pixels from the left."""
        part = (math.log10(max(value, 10.0**self.low)) - self.low) / (self.high - self.low)
        return LEFT + part * (WIDTH - LEFT - RIGHT)

    def grid(self, top: float, bottom: float) -> Iterator[str]:
        """A line and a number for each power of ten."""
        for power in range(self.low, self.high + 1):
            x = self.at(10.0**power)
            yield f'<line x1="{x:.1f}" y1="{top:.1f}" x2="{x:.1f}" y2="{bottom:.1f}" stroke="#ddd"/>'
            yield _text(x, bottom + 16, f"{10.0**power:g}", "middle")


def bars(title: str, values: dict[str, dict[str, float]]) -> str:
    """Groups of horizontal bars on a logarithmic axis: values by row and contender."""
    names = [name for name in CARDS if any(name in row for row in values.values())]
    top = 64.0
    bottom = top + sum(BAR * len(row) + GAP for row in values.values())
    scale = LogScale([value for row in values.values() for value in row.values()])
    parts = [_text(LEFT, 24, title, size=16, weight="bold"), *_legend(names, 46), *scale.grid(top, bottom)]
    y = top + GAP / 2
    for label, row in values.items():
        parts.append(_text(LEFT - 8, y + BAR * len(row) / 2 + 4, label, "end"))
        for name in names:
            if name in row:
                length = max(1.0, scale.at(row[name]) - LEFT)
                parts.append(
                    f'<rect x="{LEFT}" y="{y:.1f}" width="{length:.1f}" height="{BAR - 2}" fill="{COLOURS[name]}"/>'
                )
                parts.append(_text(min(LEFT + length + 4, WIDTH - 40), y + BAR - 3, f"{row[name]:.3g}", size=10))
                y += BAR
        y += GAP
    return _document(bottom + 30, parts)


def distributions(title: str, times: dict[str, list[float]]) -> str:
    """What part of the queries was answered within each time: a curve for each contender, in milliseconds."""
    height, top = 300.0, 64.0
    bottom = top + height
    in_milliseconds = {name: sorted(time * 1e3 for time in found) for name, found in times.items()}
    scale = LogScale([time for found in in_milliseconds.values() for time in found])
    parts = [_text(LEFT, 24, title, size=16, weight="bold"), *_legend(list(times), 46), *scale.grid(top, bottom)]
    for percent in (0, 50, 95, 100):
        y = bottom - height * percent / 100
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{percent} %", "end"))
    for name, found in in_milliseconds.items():
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in _curve(found, scale, bottom, height))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>')
    parts.append(_text(WIDTH - RIGHT, bottom + 32, "milliseconds", "end"))
    return _document(bottom + 40, parts)


def _curve(found: Sequence[float], scale: LogScale, bottom: float, height: float) -> Iterator[tuple[float, float]]:
    """Points of a cumulative curve, no more than are seen."""
    count = len(found)
    yield scale.at(found[0]), bottom
    for step in range(1, 201):
        at = max(0, math.ceil(step / 200 * count) - 1)
        yield scale.at(found[at]), bottom - height * step / 200
