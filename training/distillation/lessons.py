"""What a student learns: the teacher's answers to all questions, made once before training."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from kcard.batches import batched
from kcard.errors import TrainingInterrupted, UsageError
from kcard.sampling import derive_seed
from kcard.training.distillation.loss import DistilledExample
from kcard.training.distillation.questions import PassageQuestion
from kcard.training.distillation.targets import Target, Targets
from kcard.training.distillation.teacher import ANSWER, REASONS, Teacher
from kcard.training.epochs import Epochs, Shown, windowed_epochs
from kcard.training.execution import Execution, forked_rng
from kcard.training.interrupt import Interrupt
from kcard.training.lazy import Lazy
from kcard.training.progress import Note, Report, TeacherProgress, silent

__all__ = ["Distillation", "Lessons", "distilled_epochs", "lessons"]

ANSWERED = 0.5  # share of questions below which the base is said to read its prompt badly
FILE = "teacher.bin"


@dataclass(frozen=True)
class Distillation:
    """What distillation needs besides the model.

    kept     the folder in which the teacher's answers lie until training has ended; None: nowhere
    resume   whether to go on with those that are there
    remedy   how to go on after Ctrl-C, in words
    limit    questions that the teacher is asked at most, of which the rest is extrapolated: for an estimate
    """

    questions: Sequence[PassageQuestion]
    kept: Path | None = None
    resume: bool = False
    report: Report = silent
    remedy: str = ""
    limit: int | None = None


@dataclass(frozen=True)
class Lessons:
    """`new` and `known`: examples of new passages, and of those that the last version knows.

    record   what the manifest says of them
    seconds  that asking the teacher takes, in all
    share    of the questions that were asked, below 1 in an estimate
    """

    new: Sequence[DistilledExample]
    known: Sequence[DistilledExample]
    record: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    share: float = 1.0


def lessons(given: Distillation, teacher: Teacher, execution: Execution, fingerprint: str) -> Lessons:
    """Ask the teacher every question that it was not asked yet.

    Raises UsageError where nothing can be learned of its answers, and TrainingInterrupted after Ctrl-C.
    """
    questions = _drawn(given.questions, given.limit)
    path = None if given.kept is None else given.kept / FILE
    targets = Targets(path, fingerprint, given.resume)
    begun, before = time.monotonic(), len(targets)
    with forked_rng(teacher.model.device), Interrupt() as interrupt:
        for rows in _batches(questions[before:], teacher, execution):
            for number, found in enumerate(teacher.examples(rows), len(targets)):
                kept = found if isinstance(found, DistilledExample) else None
                targets.append(Target(number, kept, 0 if kept is not None else int(str(found))))
            targets.flush()
            given.report(TeacherProgress(len(targets), len(questions)))
            if interrupt.asked:
                raise TrainingInterrupted(
                    f"stopped after {len(targets)} of {len(questions)} questions to the teacher: {given.remedy}"
                )
    asked = max(1, len(questions) - before)
    seconds = (time.monotonic() - begun) * len(given.questions) / asked
    return _learned(targets, questions, given, seconds)


def distilled_epochs(found: Lessons, size: int, seed: int) -> Epochs:
    """All new examples in random order, and as many that are known, drawn anew each time; rows of like length meet."""
    shown = Shown(found.new, found.known, size, seed)
    return windowed_epochs(shown, lambda rows, _: [shown.items[row] for row in rows])


def _drawn(questions: Sequence[PassageQuestion], limit: int | None) -> Sequence[PassageQuestion]:
    if limit is None or len(questions) <= limit:
        return questions
    return Random(derive_seed(0, "estimate")).sample(questions, limit)


def _batches(
    questions: Sequence[PassageQuestion], teacher: Teacher, execution: Execution
) -> Iterator[list[PassageQuestion]]:
    """As many questions at a time as the longest prompt of a hundred allows."""
    for window in batched(questions, 100):
        longest = max(map(teacher.length, window)) + ANSWER
        yield from batched(window, execution.rows(min(longest, teacher.room)))


def _learned(
    targets: Targets, questions: Sequence[PassageQuestion], given: Distillation, seconds: float
) -> Lessons:
    places: dict[bool, list[int]] = {False: [], True: []}
    reasons: Counter[int] = Counter()
    for place, target in enumerate(targets):
        if target.example is None:
            reasons[target.reason] += 1
        else:
            places[questions[target.question].known].append(place)
    kept = len(places[False]) + len(places[True])
    told = ", ".join(f"{count:,} with {REASONS[number]}" for number, count in sorted(reasons.items()))
    if not places[False]:
        raise UsageError(
            f"the teacher answers none of {len(questions):,} questions ({told}): choose a base that reads the passage "
            "in its prompt, or other study material"
        )
    left = f"; left out: {told}" if told else ""
    given.report(Note(f"the teacher's answers to {kept:,} of {len(questions):,} questions are learned{left}"))
    if kept < ANSWERED * len(questions):
        given.report(
            Note("the base seems to read its prompt badly: a larger one, or an instruct model, may help")
        )

    def example(place: int) -> DistilledExample:
        found = targets[place].example
        assert found is not None
        return found

    def examples(*, known: bool) -> Sequence[DistilledExample]:
        return Lazy(len(places[known]), lambda index: example(places[known][index]))

    return Lessons(
        examples(known=False),
        examples(known=True),
        {"teacher_questions": len(questions), "teacher_answers": kept},
        seconds,
        len(questions) / len(given.questions),
    )
