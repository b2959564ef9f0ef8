"""The chart of a bench: one SVG that stands alone, in the colours of the page it is shown on."""

from __future__ import annotations

from html import escape
from itertools import count

from readers.bench.report import BenchReport, Tried

_LEFT, _BARS, _RIGHT, _ROW, _TOP, _FOOT = 300, 460, 110, 26, 64, 22

_STYLE = """
  text { fill: #1f2328; } .dim { fill: #57606a; font-size: 12.5px; } .end { text-anchor: end; }
  .bar { fill: #8fb8de; } .best { fill: #0969da; } .raw { fill: #8c959f; } .back { fill: #ffffff; }
  .spread { stroke: #1f2328; stroke-width: 1.5; } .bound { stroke: #bc4c00; stroke-dasharray: 4 3; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .dim { fill: #9198a1; } .back { fill: #0d1117; }
    .bar { fill: #1f4b7d; } .best { fill: #58a6ff; } .raw { fill: #6e7681; }
    .spread { stroke: #e6edf3; } .bound { stroke: #f0883e; }
  }
"""


def draw_chart(report: BenchReport) -> str:
    """Images a second of all settings, with least and most.

    A dashed line is what training takes with the step that was given, where it lies among them.
    """
    rows = [*report.tried, *([report.raw] if report.raw is not None else [])]
    most = max(one.images_per_s_most for one in rows)
    size = report.best.setting.batch_size
    height = _TOP + _ROW * len(rows) + _FOOT
    about = f"{report.sample_count:,} samples, batches of {size}"
    about += f", {report.work}" if report.work else ""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _BARS + _RIGHT} {height}" '
        'role="img" aria-labelledby="t d" font-family="system-ui, sans-serif" font-size="14">',
        f'<title id="t">Images a second of {_text(report.store)}</title>',
        f'<desc id="d">{_text("; ".join(map(_words, rows)))}</desc>',
        f"<style>{_STYLE}</style>",
        '<rect class="back" width="100%" height="100%"/>',
        f'<text x="12" y="24" font-weight="600">Images/s of {_text(report.store)}</text>',
        f'<text class="dim" x="12" y="44">{_text(about)}; lines: least to most</text>',
    ]
    for one, y in zip(rows, count(_TOP, _ROW), strict=False):
        kind = "best" if one is report.best else "raw" if one is report.raw else "bar"
        lines += _row(one, y, kind, _BARS / most)
    step = report.step
    if step is not None and step.needed_images_per_s <= most:
        x = _LEFT + step.needed_images_per_s * _BARS / most
        lines += [
            f'<line class="bound" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 6}" y2="{height - 18}"/>',
            f'<text class="dim" x="{x:.1f}" y="{height - 5}" text-anchor="middle">'
            f"steps of {step.step_ms:g} ms</text>",
        ]
    return "\n".join([*lines, "</svg>", ""])


def _row(one: Tried, y: int, kind: str, scale: float) -> list[str]:
    width = one.images_per_s * scale
    least, most = (_LEFT + rate * scale for rate in (one.images_per_s_least, one.images_per_s_most))
    name = one.setting.name() + (" (default)" if one.is_default else "")
    return [
        f'<text class="end" x="{_LEFT - 10}" y="{y + 14}">{_text(name)}</text>',
        f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{width:.1f}" height="18" rx="3"/>',
        f'<line class="spread" x1="{least:.1f}" x2="{most:.1f}" y1="{y + 9}" y2="{y + 9}"/>',
        f'<text class="dim" x="{most + 8:.1f}" y="{y + 14}">{one.images_per_s:,.0f}</text>',
    ]


def _words(one: Tried) -> str:
    return f"{one.setting.name()}: {one.images_per_s:,.0f}"


def _text(text: str) -> str:
    """Text for XML, which has no place for control characters nor for bytes that are no UTF-8."""
    return escape("".join(char if char.isprintable() else "\ufffd" for char in text))
