"""ROC curves of scores that should be high for true items, and an SVG plot of them."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

COLOURS = ("#3f6fb5", "#b5651d", "#1f8a70", "#8a4fb5", "#b3403a", "#676b73")
SIDE, GAP, TOP = 260, 96, 56


@dataclass(frozen=True)
class Curve:
    """`points`: false and true positive rate, both in [0, 1], for every threshold; `auc` is the area under them."""

    points: tuple[tuple[float, float], ...]
    auc: float


def curve(true: Sequence[float], false: Sequence[float]) -> Curve | None:
    """The curve of calling true what scores at least a threshold; None where either is empty.

    The area is the share of pairs in which the true one has the higher score, equal ones counting half.
    """
    if not true or not false:
        return None
    points, area = [(0.0, 0.0)], 0.0
    for threshold in sorted({*true, *false}, reverse=True):
        x = sum(score >= threshold for score in false) / len(false)
        y = sum(score >= threshold for score in true) / len(true)
        area += (x - points[-1][0]) * (y + points[-1][1]) / 2
        points.append((x, y))
    return Curve(tuple(points), area)


def svg(
    cards: Mapping[str, Curve], documents: Mapping[str, Curve], scores: Mapping[str, Sequence[float]]
) -> str:
    """Three panels: ROC over cards, ROC over documents, and the score of every card by group."""
    panels = [
        _roc("Cards", cards),
        _roc("Documents", documents),
        _strip("Mean factuality of each card", scores),
    ]
    width = 3 * (SIDE + GAP) + 40
    style = "text{font:12px system-ui,sans-serif;fill:#333}.h{font-weight:600;font-size:14px}.s{fill:#777}"
    moved = "".join(
        f'<g transform="translate({56 + i * (SIDE + GAP)},{TOP})">{panel}</g>'
        for i, panel in enumerate(panels)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {SIDE + TOP + 60}" width="{width}">'
        f'<style>{style}</style><rect width="100%" height="100%" fill="#fff"/>{moved}</svg>\n'
    )


def _frame(title: str, across: str, up: str) -> str:
    ticks = "".join(
        f'<text class="s" x="-8" y="{SIDE * (1 - t) + 4:.0f}" text-anchor="end">{t:g}</text>'
        f'<line x1="0" x2="{SIDE}" y1="{SIDE * (1 - t):.0f}" y2="{SIDE * (1 - t):.0f}" stroke="#eee"/>'
        for t in (0, 0.25, 0.5, 0.75, 1)
    )
    return (
        f'<text class="h" x="0" y="-18">{title}</text>{ticks}'
        f'<text class="s" x="{SIDE / 2}" y="{SIDE + 38}" text-anchor="middle">{across}</text>'
        f'<text class="s" transform="translate(-38,{SIDE / 2}) rotate(-90)" text-anchor="middle">{up}</text>'
    )


def _roc(title: str, curves: Mapping[str, Curve]) -> str:
    drawn = [_frame(f"ROC over {title.lower()}", "false ones taken for true", "true ones taken for true")]
    drawn += [
        f'<text class="s" x="{SIDE * t:.0f}" y="{SIDE + 18}" text-anchor="middle">{t:g}</text>'
        for t in (0, 0.25, 0.5, 0.75, 1)
    ]
    drawn.append(f'<line x1="0" y1="{SIDE}" x2="{SIDE}" y2="0" stroke="#ccc" stroke-dasharray="4 4"/>')
    for i, (name, curve) in enumerate(curves.items()):
        line = " ".join(f"{SIDE * x:.1f},{SIDE * (1 - y):.1f}" for x, y in curve.points)
        colour, at = COLOURS[i % len(COLOURS)], SIDE - 14 - 17 * (len(curves) - 1 - i)
        drawn.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        drawn.append(f'<rect x="{SIDE - 134}" y="{at - 9}" width="10" height="10" fill="{colour}"/>')
        drawn.append(f'<text x="{SIDE - 118}" y="{at}">{html.escape(name)}: AUC {curve.auc:.3f}</text>')
    return "".join(drawn)


def _strip(title: str, scores: Mapping[str, Sequence[float]]) -> str:
    drawn = [_frame(title, "winners swapped", "factuality")]
    for i, (name, values) in enumerate(scores.items()):
        x = SIDE * (i + 0.5) / len(scores)
        drawn.append(
            f'<text class="s" x="{x:.0f}" y="{SIDE + 18}" text-anchor="middle">{html.escape(name)}</text>'
        )
        drawn += [
            f'<circle cx="{x + 5 * ((j % 3) - 1):.1f}" cy="{SIDE * (1 - value):.1f}" r="3.5" '
            f'fill="{COLOURS[0 if i else 2]}" fill-opacity=".65"/>'
            for j, value in enumerate(values)
        ]
    return "".join(drawn)
