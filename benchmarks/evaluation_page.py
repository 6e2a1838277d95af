"""The tables and plots of benchmarks/evaluation.py in docs/evaluation.md."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kcard.evaluation.runs.summary import SettingSummary
from kcard.system import cores

BEGIN, END = "<!-- results of benchmarks/evaluation.py -->", "<!-- end of the results -->"
SCORES, COSTS = "pictures/evaluation.svg", "pictures/evaluation-cost.svg"
SURE = 0.05
NEAR = 0.04  # scores that a label could not tell apart


@dataclass(frozen=True)
class Measured:
    """A task under a setting; `own`: a card knows the answers."""

    row: SettingSummary
    own: bool


def write_page(
    docs: Path, rows: Sequence[Measured], through: Sequence[Measured], missing: Sequence[str], seconds: float
) -> None:
    """Put tables and plots between the marks in evaluation.md."""
    page = docs / "evaluation.md"
    head, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, tail = rest.partition(END)
    plot_scores(rows, docs / SCORES)
    plot_costs(rows, docs / COSTS)
    counts = sorted({m.row.n for m in rows})
    lines = [
        BEGIN,
        f"{_counts(counts)} questions of each task, drawn with seed 0; {seconds / 60:.0f} minutes on {cores()} cores "
        f"({platform.machine()}).",
        *([f"Not asked, because their files were not there: {', '.join(missing)}."] if missing else []),
        "",
        *scores(rows),
        "",
        _differences(rows),
        "A card knows the answers of the first tasks, up to the dashes; none knows the others'.",
        "Where no passage decides, the embedded LLM says that it does not know, also if there are options; this counts",
        "as wrong.",
        "",
        f"![Scores with 95 % intervals]({SCORES})",
        "",
        *costs(rows),
        "",
        f"![Mean score and calls of each setting]({COSTS})",
    ]
    if through:
        lines += [
            "",
            "Through a server process (`transformers serve`, an OPT of 1.2 million parameters with a window of 160 "
            f"tokens, {through[0].row.n} questions of each task):",
            "",
            *served(through),
        ]
    page.write_text(head + "\n".join([*lines, END]) + tail, encoding="utf-8")


def scores(rows: Sequence[Measured]) -> list[str]:
    """Tasks as rows, settings as columns; those that a card knows first."""
    settings = _settings(rows)
    lines = ["| task | metric | " + " | ".join(settings) + " |", "|---|---|" + "---|" * len(settings)]
    for own in (True, False):
        for task in _tasks(rows, own):
            by_setting = {m.row.setting: m.row for m in rows if m.row.task == task}
            metric = next(iter(by_setting.values())).metric
            lines.append(
                f"| {task} | {metric} | " + " | ".join(_cell(by_setting[s]) for s in settings) + " |"
            )
        if own and _tasks(rows, True) and _tasks(rows, False):
            lines.append("| | | " + " | ".join("—" for _ in settings) + " |")
    return lines


def costs(rows: Sequence[Measured]) -> list[str]:
    """What a question costs under each setting, over all tasks."""
    lines = [
        "| setting | LLM calls a question | seconds a question | failed questions |",
        "|---|---|---|---|",
    ]
    for setting in _settings(rows):
        theirs = [m.row for m in rows if m.row.setting == setting]
        n = sum(row.n for row in theirs)
        calls, seconds = sum(row.calls for row in theirs), sum(row.seconds for row in theirs)
        lines.append(
            f"| {setting} | {calls / n:.1f} | {seconds / n:.2f} | {sum(row.errors for row in theirs)} |"
        )
    return lines


def served(rows: Sequence[Measured]) -> list[str]:
    lines = [
        "| task | setting | score | 95 % interval | calls | tokens read | tokens written | seconds | failed |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in (m.row for m in rows):
        lines.append(
            f"| {row.task} | {row.setting} | {row.value:.2f} | {row.low:.2f} to {row.high:.2f} | {row.calls} | "
            f"{row.tokens_in} | {row.tokens_out} | {row.seconds:.1f} | {row.errors} |"
        )
    return lines


def plot_scores(rows: Sequence[Measured], file: Path) -> None:
    """A panel for each task: every setting's score with its interval, as SVG."""
    import matplotlib
    from matplotlib.figure import Figure

    tasks, settings = [*_tasks(rows, True), *_tasks(rows, False)], _settings(rows)
    columns = 4
    lines = -(-len(tasks) // columns)
    figure = Figure(figsize=(12, 0.5 + lines * (0.6 + 0.2 * len(settings))), layout="constrained")
    for place, task in enumerate(tasks):
        axes = figure.add_subplot(lines, columns, place + 1)
        by_setting = {m.row.setting: m.row for m in rows if m.row.task == task}
        for y, row in enumerate(by_setting[s] for s in settings):
            axes.plot([row.low, row.high], [y, y], color="#4c78a8", linewidth=1.5)
            axes.plot([row.value], [y], "o", color="#1f3a5f", markersize=4)
        axes.set_title(f"{task} ({by_setting[settings[0]].metric})", fontsize=9)
        axes.set_xlim(-0.03, 1.03)
        axes.set_yticks(
            range(len(settings)), settings if place % columns == 0 else [""] * len(settings), fontsize=8
        )
        axes.tick_params(axis="x", labelsize=8)
        axes.invert_yaxis()
        axes.grid(axis="x", color="#ddd", linewidth=0.6)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "kcard"}):
        figure.savefig(file, metadata={"Date": None})


def plot_costs(rows: Sequence[Measured], file: Path) -> None:
    """Mean score over the tasks that a card knows against calls a question, a point for each setting, as SVG."""
    import matplotlib
    from matplotlib.figure import Figure

    places: dict[tuple[float, float], list[str]] = {}  # settings at nearly the same place share a point
    for setting in _settings(rows):
        theirs = [m.row for m in rows if m.row.setting == setting and m.own]
        if theirs:
            calls = sum(row.calls for row in theirs) / sum(row.n for row in theirs)
            score = sum(row.value for row in theirs) / len(theirs)
            places.setdefault((round(calls, 1), round(score / NEAR) * NEAR), []).append(setting)
    figure = Figure(figsize=(7, 3.5), layout="constrained")
    axes = figure.add_subplot()
    most = max((calls for calls, _ in places), default=1.0)
    for (calls, score), settings in places.items():
        left = calls > most / 2
        axes.plot([calls], [score], "o", color="#1f3a5f")
        axes.annotate(
            ", ".join(settings),
            (calls, score),
            xytext=(-7 if left else 7, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            fontsize=8,
        )
    axes.set_xlabel("LLM calls a question")
    axes.set_ylabel("mean score, tasks that a card knows")
    axes.set_xlim(0, most * 1.05)
    axes.set_ylim(-0.03, 1.03)
    axes.grid(color="#ddd", linewidth=0.6)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "kcard"}):
        figure.savefig(file, metadata={"Date": None})


def _differences(rows: Sequence[Measured]) -> str:
    """What a star means; where there is none, that no difference is sure."""
    test = f"p of the paired test below {SURE:g} after Holm's correction for the settings of the task"
    first = _settings(rows)[0]
    if any("*" in _cell(m.row) for m in rows):
        return f"\\* differs from `{first}`: {test}."
    return f"With so few questions no setting differs for sure from `{first}` ({test})."


def _cell(row: SettingSummary) -> str:
    sure = row.p_holm is not None and row.p_holm < SURE
    return f"{row.value:.2f}" + ("\\*" if sure else "")


def _settings(rows: Sequence[Measured]) -> list[str]:
    return list(dict.fromkeys(m.row.setting for m in rows))


def _tasks(rows: Sequence[Measured], own: bool) -> list[str]:
    return list(dict.fromkeys(m.row.task for m in rows if m.own == own))


def _counts(counts: Sequence[int]) -> str:
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
