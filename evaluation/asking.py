"""A card, and the base that it was made from, asked the questions of an exam: greedily, one document a writer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kcard.answer import Passage
from kcard.batches import batched
from kcard.errors import CardError, ModelUnavailable, UsageError
from kcard.evaluation.progress import Report, StepProgress
from kcard.evaluation.questions import Question
from kcard.evaluation.recall import CHANCE
from kcard.sampling import Sampling

if TYPE_CHECKING:
    from kcard.cards.format.folder import Card
    from kcard.cards.kinds.generator import CardGenerator
    from kcard.cards.lm.loader import Loader

__all__ = ["BaseAnswers", "Rows", "ask", "ask_base", "check_device", "written"]

# Questions that are asked at once.
BLOCK = 64
# For each question what was written: by the card's model first, where it has one, then by its index.
Rows = list[list[Passage]]


@dataclass(frozen=True)
class BaseAnswers:
    """What the card's recall is compared with. `rows`: what it wrote; None for chance, or where `note` says why."""

    name: str
    rows: Rows | None = None
    note: str = ""

    def part(self, start: int, stop: int | None = None) -> "BaseAnswers":
        """The same of some of the questions."""
        return self if self.rows is None else replace(self, rows=self.rows[start:stop])


def check_device(device: str) -> None:
    """Raise UsageError for a device that torch does not have here."""
    import torch

    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdigit()):
        raise UsageError(f"device {device!r} is unknown: choose cpu, cuda or cuda:N")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise UsageError(f"device {device!r}: there are {torch.cuda.device_count()} GPUs here: choose cpu")


def ask(card: "Card", questions: Sequence[Question], seed: int, device: str, report: Report) -> Rows:
    """Have the card write a document for each question, greedily. Raises what loading does."""
    from kcard.cards.lm.loader import Loader

    texts = [question.text for question in questions]
    return written(card, texts, 1, Sampling(temperature=0, seed=seed), Loader(device=device), report)


def written(
    card: "Card",
    questions: Sequence[str],
    documents: int,
    sampling: Sampling,
    models: "Loader",
    report: Report,
) -> Rows:
    """Have the card, loaded by `models`, write so many documents for each question."""
    from kcard.cards.kinds.generator import load

    return _written(load(card, models), questions, documents, sampling, f"asking {card.name}", report)


def ask_base(
    card: "Card", questions: Sequence[Question], seed: int, device: str, report: Report
) -> BaseAnswers:
    """Have the base model write for the same prompts, without what the card learned.

    A card from scratch, or one that only looks up, has none: chance stands in for it. A base that can't be had
    is named with the reason.
    """
    name = card.manifest.base.name
    if not name:
        return BaseAnswers(CHANCE)
    from kcard.cards.lm.fallback.card import CausalCard
    from kcard.cards.lm.loader import Loader

    try:
        base = CausalCard(card, Loader(device=device), bare=True)
    except (ModelUnavailable, CardError) as error:
        return BaseAnswers(name, note=str(error))
    texts, sampling = [question.text for question in questions], Sampling(temperature=0, seed=seed)
    return BaseAnswers(name, _written(base, texts, 1, sampling, f"asking {name}", report))


def _written(
    writer: "CardGenerator",
    questions: Sequence[str],
    documents: int,
    sampling: Sampling,
    what: str,
    report: Report,
) -> Rows:
    rows: Rows = []
    report(StepProgress(what, 0, len(questions)))
    for block in batched(questions, BLOCK):
        rows += writer.write(block, documents, sampling)
        report(StepProgress(what, len(rows), len(questions)))
    return rows
