"""Questions that a corpus does not answer, to see whether that is admitted: its own questions about somebody or
something that is not in it, and questions on quite other subjects."""

import tomllib
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from random import Random

from kcard.answer import Source
from kcard.evaluation.questions import Question
from kcard.sampling import derive_seed
from kcard.training.spans import entities

__all__ = ["absent"]

_TABLES = tomllib.loads(Path(__file__).with_name("absent.toml").read_text(encoding="utf-8"))
INVENTED: dict[int, Sequence[str]] = {int(words): names for words, names in _TABLES["invented"].items()}
ELSEWHERE: Sequence[str] = _TABLES["elsewhere"]


def absent(asked: Sequence[Question], corpus: Iterable[Source], count: int, seed: int) -> list[Question]:
    """`count` questions without an answer: half of them like `asked` with another name, half on other subjects."""
    rng = Random(derive_seed(seed, "absent"))
    known = _known(corpus)
    strange = [renamed for question in asked if (renamed := _renamed(question.text, known, rng))]
    near = [Question(text, ()) for text in list(dict.fromkeys(strange))[: (count + 1) // 2]]
    others = [text for text in ELSEWHERE if not _is_about(text, known)]
    far = [Question(text, ()) for text in rng.sample(others, min(len(others), count - len(near)))]
    return [*near, *far]


def _known(corpus: Iterable[Source]) -> Collection[str]:
    """The words of a corpus that begin with a capital."""
    return {
        word.strip(".,;:()\"'") for source in corpus for word in source.text.split() if word[:1].isupper()
    }


def _renamed(question: str, known: Collection[str], rng: Random) -> str | None:
    """The question about somebody or something that is not in the corpus; None where it names nothing."""
    first = len(question.split(" ")[0])
    names = [(a, b) for a, b in entities(question) if a > first and question[a].isupper()]
    if not names:
        return None
    start, end = rng.choice(names)
    words = min(3, question[start:end].count(" ") + 1)
    invented = [name for name in INVENTED[words] if not any(part in known for part in name.split())]
    before = question[:start].removesuffix("the ").removesuffix("The ")
    return f"{before}{rng.choice(invented)}{question[end:]}" if invented else None


def _is_about(question: str, known: Collection[str]) -> bool:
    """Whether the corpus may hold the answer: it has a name of the question."""
    return any(word.strip("?") in known for word in question.split()[1:] if word[:1].isupper())
