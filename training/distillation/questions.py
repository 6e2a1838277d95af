"""The questions of study material that a student is asked, with the passages that its teacher reads."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kcard.answer import Source
from kcard.training.question_forms import trained_wording
from kcard.training.study.item import QUESTIONS, StudyItem
from kcard.words import passage_digest

__all__ = ["PassageQuestion", "passage_questions"]


@dataclass(frozen=True)
class PassageQuestion:
    """A question and its answer, as study material has them, and the text that holds the answer.

    known  whether the last version of a card that is updated has learned all of its passages
    """

    text: str
    answer: str
    passage: str
    known: bool = False


def passage_questions(
    items: Iterable[StudyItem], passages: Iterable[Source], known: int = 0
) -> Sequence[PassageQuestion]:
    """The items that are questions with an answer, about passages of the corpus; equal ones once.

    One that an exam might ask has a few words before it (kcard.training.question_forms).

    known  the first so many passages are those of the last version
    """
    asked = [item for item in items if item.kind in QUESTIONS and item.answer]
    wanted = {digest for item in asked for digest in item.passages}
    texts: dict[str, tuple[str, bool]] = {}
    for place, passage in enumerate(passages):
        if (digest := passage_digest(passage.text)) in wanted:
            texts.setdefault(digest, (passage.text, place < known))
    found = []
    for item in asked:
        told = [texts[digest] for digest in item.passages if digest in texts]
        text = trained_wording(item.text)
        if text and told and len(told) == len(item.passages):
            about = "\n\n".join(text for text, _ in told)
            found.append(PassageQuestion(text, item.answer, about, all(old for _, old in told)))
    return [*dict.fromkeys(found)]
