"""Which questions a page shows, and how much of their texts: a page stays readable however large the run."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from typing import Any

from kcard.evaluation.report.outcome import Outcome
from kcard.evaluation.runs.result import Result

__all__ = ["QUESTIONS", "Excerpt", "Shown", "excerpt"]

QUESTIONS = 200
TEXT = 6_000  # characters of one text
PAGE = 8_000_000  # characters of all texts of a page
Key = tuple[str, str]  # task and id of a question


@dataclass(frozen=True)
class Shown:
    """A question with its results, one a setting; `differ`: one setting answered it and another did not."""

    results: tuple[tuple[Outcome, Result], ...]
    differ: bool

    @property
    def question(self) -> Result:
        """Any of the results: all are of the same question."""
        return self.results[0][1]


@dataclass(frozen=True)
class Excerpt:
    """The questions of a page, in the order in which they were asked, of `total`."""

    questions: tuple[Shown, ...]
    total: int
    differing: int

    @property
    def left_out(self) -> int:
        return self.total - len(self.questions)


def excerpt(found: Sequence[Outcome], results: Iterable[Result], most: int = QUESTIONS) -> Excerpt:
    """At most `most` questions: those on which settings differ first, of every task and group in turn.

    Long texts are cut, and questions left out, so that the page has no more than about PAGE characters of them.
    """
    by_question: dict[Key, list[Outcome]] = {}
    for outcome in found:
        by_question.setdefault((outcome.task, outcome.id), []).append(outcome)
    differing = {key for key, part in by_question.items() if len({o.right for o in part}) > 1}
    chosen = set(_in_turn(by_question, differing)[:most])
    texts: dict[Key, dict[str, Result]] = {}
    for result in results:
        if (result.task, result.id) in chosen:
            texts.setdefault((result.task, result.id), {})[result.setting] = shortened(result)
    shown: set[Key] = set()
    room = PAGE
    for key in _in_turn(by_question, differing)[:most]:
        room -= sum(_characters(asdict(result)) for result in texts[key].values())
        if room < 0 and shown:
            break
        shown.add(key)
    return Excerpt(
        tuple(
            Shown(tuple((o, texts[key][o.setting]) for o in by_question[key]), key in differing)
            for key in by_question
            if key in shown
        ),
        len(by_question),
        len(differing),
    )


def _in_turn(by_question: dict[Key, list[Outcome]], differing: set[Key]) -> list[Key]:
    """All questions, those that differ first; of each kind one from every task and group, then the next."""
    order: list[Key] = []
    for wanted in (True, False):
        parts: dict[Key, list[Key]] = {}
        for key, part in by_question.items():
            if (key in differing) is wanted:
                parts.setdefault((key[0], part[0].group), []).append(key)
        order += [key for turn in zip_longest(*parts.values()) for key in turn if key is not None]
    return order


def shortened(result: Result) -> Result:
    """The result with every text cut to TEXT characters."""
    data = _cut(asdict(result))
    calls = tuple(
        replace(call, prompt=_cut(call.prompt), reply=_cut(call.reply), error=_cut(call.error))
        for call in result.calls
    )
    return replace(
        result,
        question=data["question"],
        answers=tuple(data["answers"]),
        prediction=data["prediction"],
        choices=data["choices"],
        calls=calls,
        trace=data["trace"],
        error=data["error"],
    )


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > TEXT:
        half = TEXT // 2
        return f"{value[:half]}\n[… {len(value) - 2 * half:,} characters left out …]\n{value[-half:]}"
    if isinstance(value, dict):
        return {key: _cut(inner) for key, inner in value.items()}
    return [_cut(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _characters(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_characters, value.values()))
    return sum(map(_characters, value)) if isinstance(value, (list, tuple)) else 0
