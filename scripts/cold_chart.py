"""A chart of `bench_cold.py`: a bar for each way, in groups; SVG, which every browser shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

COLOURS = {
    "folder": "#8a8f98",
    "plain": "#c9a24b",
    "tar": "#7b9e87",
    "ours": "#2f6fb0",
    "stock": "#8fb8de",
}

_BAR, _GAP, _LEFT, _WIDTH = 16, 14, 230, 560


def draw_chart(rates: Sequence[tuple[tuple[str, str, str, str], float]]) -> str:
    """A chart of images a second on a scale of powers of ten.

    Args:
        rates: (place, form, order, way) and images a second, those of a group together.
    """
    least = 10 ** math.floor(math.log10(max(0.1, min(rate for _, rate in rates))))
    most = 10 ** math.ceil(math.log10(max(rate for _, rate in rates)))

    def at(rate: float) -> float:
        share = math.log10(max(rate, least) / least) / math.log10(most / least)
        return _LEFT + _WIDTH * share

    parts, y = [], 40
    for group, members in groupby(rates, key=lambda item: item[0][:3]):
        label = ", ".join(group)
        parts.append(f'<text x="10" y="{y + 12}" font-weight="bold">{label}</text>')
        y += _BAR + 2
        for (_, _, _, way), rate in members:
            parts.append(f'<text x="{_LEFT - 8}" y="{y + 12}" text-anchor="end">{way}</text>')
            parts.append(
                f'<rect x="{_LEFT}" y="{y}" width="{max(1.0, at(rate) - _LEFT):.1f}" '
                f'height="{_BAR - 2}" fill="{COLOURS[way]}"/>'
            )
            parts.append(f'<text x="{at(rate) + 5:.1f}" y="{y + 12}">{rate:,.0f}</text>')
            y += _BAR
        y += _GAP
    lines = []
    for power in range(round(math.log10(least)), round(math.log10(most)) + 1):
        x = at(10**power)
        lines.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="30" y2="{y}" stroke="#ddd"/>')
        lines.append(f'<text x="{x:.1f}" y="24" text-anchor="middle">{10**power:g}</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 80}" '
            f'height="{y + 10}" font-family="sans-serif" font-size="12">',
            '<rect width="100%" height="100%" fill="white"/>',
            '<text x="10" y="24">images a second</text>',
            *lines,
            *parts,
            "</svg>",
        ]
    )
