#!/usr/bin/env python3
"""Draws results of `lanekeeper bench --output json` as SVG line charts, one for each series.

    scripts/draw.py DIR FILE...     scripts/draw.py docs/bench docs/bench/*.json

A comparison is drawn along the axis of its `place`, the latency of a trend along time; a series needs two points.
An existing drawing of the same name is replaced. Only Python's standard library is needed.
"""

import json
import math
import sys
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, BOTTOM = 72, WIDTH - 24, HEIGHT - 56
# Two legend entries on each line below the title.
LEGEND_TOP, LEGEND_LINE = 48, 20
# Colour and dashes: lines differ in both, for light and dark pages and for readers who see no colours.
STROKES = [("#2f81f7", ""), ("#e16f24", "6 4"), ("#8957e5", "2 3"), ("#2da44e", "9 3 2 3")]
STYLE = (
    "<style>text{font:13px system-ui,sans-serif;fill:#57606a}.title{font-size:16px;font-weight:600}"
    ".grid{stroke:#8c959f;stroke-opacity:.3}.axis{stroke:#8c959f}"
    "@media(prefers-color-scheme:dark){text{fill:#9ea7b1}}</style>"
)


def round_step(span):
    """1, 2 or 5 times a power of ten, so that about five steps cover the span."""
    rough = span / 5
    power = 10 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)


def multiples(step, low, high):
    return [n * step for n in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]


def horizontal(values):
    """The position of a value between 0 and 1, and the ticks; logarithmic where values are far apart."""
    low, high = min(values), max(values)
    if low > 0 and high / low > 20:
        powers = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
        return lambda v: math.log(v / low) / math.log(high / low), [10.0**p for p in powers]
    low = min(low, 0)
    high = high if high > low else low + 1
    return lambda v: (v - low) / (high - low), multiples(round_step(high - low), low, high)


def vertical(values):
    """The same from zero, with room above the largest value."""
    largest = max(values) or 1
    step = round_step(largest)
    high = math.ceil(largest / step) * step
    return lambda v: v / high, multiples(round_step(high), 0, high)


def label(value):
    """A tick in few characters: 1500 is 1.5k."""
    for unit, size in (("M", 1e6), ("k", 1e3), ("", 1)):
        if value >= size or not unit:
            return f"{value / size:.2f}".rstrip("0").rstrip(".") + unit


def svg(title, x_label, y_label, series):
    x, x_ticks = horizontal([at for points in series.values() for at in points])
    y, y_ticks = vertical([value for points in series.values() for value in points.values()])
    top = LEGEND_TOP + LEGEND_LINE * math.ceil(len(series) / 2)
    across = lambda value: LEFT + x(value) * (RIGHT - LEFT)
    up = lambda value: BOTTOM - y(value) * (BOTTOM - top)
    title = escape(title)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">'
        f'{STYLE}<text class="title" x="{LEFT}" y="26">{title}</text>'
    )
    for tick in y_ticks:
        at = up(tick)
        yield f'<line class="grid" x1="{LEFT}" y1="{at:.1f}" x2="{RIGHT}" y2="{at:.1f}"/>'
        yield f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{label(tick)}</text>'
    for tick in x_ticks:
        at = across(tick)
        yield f'<line class="axis" x1="{at:.1f}" y1="{BOTTOM}" x2="{at:.1f}" y2="{BOTTOM + 5}"/>'
        yield f'<text x="{at:.1f}" y="{BOTTOM + 20}" text-anchor="middle">{label(tick)}</text>'
    middle = (top + BOTTOM) / 2
    yield (
        f'<line class="axis" x1="{LEFT}" y1="{BOTTOM}" x2="{RIGHT}" y2="{BOTTOM}"/>'
        f'<text x="{(LEFT + RIGHT) // 2}" y="{HEIGHT - 14}" text-anchor="middle">{escape(x_label)}</text>'
        f'<text x="16" y="{middle:g}" text-anchor="middle" transform="rotate(-90 16 {middle:g})">{escape(y_label)}</text>'
    )
    for number, (name, points) in enumerate(series.items()):
        colour, dashes = STROKES[number % len(STROKES)]
        stroke = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"'
        legend_x = LEFT + number % 2 * (RIGHT - LEFT) // 2
        legend_y = LEGEND_TOP + LEGEND_LINE * (number // 2)
        yield f'<line x1="{legend_x}" y1="{legend_y}" x2="{legend_x + 28}" y2="{legend_y}" {stroke}/>'
        yield f'<text x="{legend_x + 36}" y="{legend_y + 4}">{escape(name)}</text>'
        line = [(across(at), up(value), at, value) for at, value in sorted(points.items())]
        path = " ".join(f"{cx:.1f},{cy:.1f}" for cx, cy, _, _ in line)
        yield f'<polyline points="{path}" fill="none" {stroke}/>'
        for cx, cy, at, value in line:
            yield (
                f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="3.5" fill="{colour}">'
                f"<title>{escape(name)}: {value:.2f} at {at:.10g}</title></circle>"
            )
    yield "</svg>\n"


def charts(results):
    """By name: title, labels and series. Of two figures at one position the later is drawn."""
    found = {}
    for result in results:
        bench = result.get("bench")
        if result["kind"] == "comparison" and result.get("place"):
            place = result["place"]
            _, _, _, series = found.setdefault(bench, (f"{bench}: events/s", place["axis"], "events/s", {}))
            for name, figure in (("Lanekeeper", result["value"]), (result["against"], result["reference"])):
                series.setdefault(name, {})[place["at"]] = figure
        elif result["kind"] == "trend":
            series = {
                f"{quantile}, {what}": {window["to_s"]: window[f"{quantile}_ms"] for window in result[windows]}
                for quantile in ("p99", "p50")
                for what, windows in (("snapshot held", "windows"), ("without", "reference_windows"))
            }
            found[bench] = (f"{bench}: answer to delivery", "age of the snapshot, s", "ms", series)
    return found


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    folder, files = Path(sys.argv[1]), sys.argv[2:]
    results = [json.loads(line) for file in files for line in Path(file).read_text().splitlines() if line.strip()]
    for name, chart in charts(results).items():
        if any(len(points) > 1 for points in chart[3].values()):
            path = folder / f"{name}.svg"
            path.write_text("".join(svg(*chart)))
            print(path)


if __name__ == "__main__":
    main()
