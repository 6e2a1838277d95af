"""Questions of exams, made from passages or read from files, and queries of audits.

If the sentences of a corpus yield too few natural questions, the rest are cloze questions, in forms that training never
uses. If sentences differ only in the answer, all of their answers are accepted: "What is a moon of Mars?" has two.
"""

import hashlib
import json
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from kcard.errors import UsageError
from kcard.evaluation.metrics import substring
from kcard.evaluation.natural_questions import CorpusQuestion, draw_question
from kcard.evaluation.tasks.base import Columns, from_rows, read_entries
from kcard.io import Row, reading
from kcard.manifest import file_digest
from kcard.text import split_sentences
from kcard.training.embedded.pseudo_queries import Rarity, bare, held_out
from kcard.types import Source, derive_seed

MIN_NATURAL_SHARE = 0.1  # of the requested questions: if fewer are natural, the rest are cloze questions
MAX_QUESTIONS_OF_PASSAGE = 3
MAX_PASSAGES_TRIED = 12  # for each requested question
MAX_FILLING_CHARACTERS = 80  # of an accepted answer


@dataclass(frozen=True)
class ExamQuestion:
    """A question and its accepted answers, first the one that it was made from; none if the corpus does not answer it.

    domain  the corpus file of the passage that it was made from, or what a query of an audit belongs to; "" if unknown
    gap     whether it is a cloze question
    """

    text: str
    answers: tuple[str, ...]
    domain: str = ""
    gap: bool = False


def make_questions(
    corpus: Sequence[Source], limit: int, seed: int, accepted: Sequence[Source] | None = None
) -> list[ExamQuestion]:
    """Make at most `limit` distinct questions about passages drawn without replacement.

    `accepted`: passages from which answers are accepted, by default those of the corpus. Equal passages, in any order,
    and an equal seed give equal questions. The corpus is read one passage at a time, so it may be larger than memory.
    """
    # Shuffle the passages by their text, so that their order does not matter.
    ranks = array("q", (derive_seed(seed, "exam", source.text) for source in corpus))
    rows = sorted(range(len(ranks)), key=ranks.__getitem__)
    tried = rows[: MAX_PASSAGES_TRIED * limit]
    rounds = ((corpus[row], nth) for nth in range(MAX_QUESTIONS_OF_PASSAGE) for row in tried)
    # Natural questions; cloze questions if there are too few.
    chosen = _take_distinct(_make_natural(rounds, seed), limit)
    if len(chosen) < min(limit, max(1, MIN_NATURAL_SHARE * min(limit, len(rows)))):
        chosen = _take_distinct([*chosen, *_make_cloze((corpus[row] for row in rows), corpus, seed)], limit)
    # Accept every text that fills the place of the answer in an otherwise equal sentence of the corpus.
    patterns: dict[tuple[str, str], re.Pattern[str]] = {}
    for candidate in chosen:
        before, after = candidate.around
        if before or after:
            begins = rf"(?:^|(?<=[.!?] )){re.escape(before)}"
            ends = rf"(?<!\w){re.escape(after)}(?!\w)"
            if not after:
                ends = r"(?=[,;:.!?…](?: |$)|$)"
            patterns[before, after] = re.compile(rf"{begins}\s*(\S.{{0,{MAX_FILLING_CHARACTERS}}}?)\s*{ends}")
    fillings: dict[tuple[str, str], dict[str, None]] = {key: {} for key in patterns}
    if accepted is None:
        accepted = corpus
    for source in accepted:
        text = " ".join(source.text.split())
        for (before, after), pattern in patterns.items():
            if before in text and after in text:
                for match in pattern.finditer(text):
                    fillings[before, after][bare(match[1])] = None
    questions = []
    for candidate in chosen:
        answers = {candidate.answer: None}
        for filling in fillings.get(candidate.around, ()):
            if not candidate.answer.startswith(f"{filling},"):  # the beginning of "January 14, 2005"
                answers[filling] = None
        is_cloze = candidate.form == "cloze"
        questions.append(ExamQuestion(candidate.text, tuple(answers), candidate.file, is_cloze))
    return questions


def digest(questions: Iterable[ExamQuestion]) -> str:
    """Return the sha256 of the questions with their accepted answers, in order."""
    hasher = hashlib.sha256()
    for question in questions:
        line = json.dumps([question.text, *question.answers], ensure_ascii=False)
        hasher.update(f"{line}\n".encode())
    return hasher.hexdigest()


def _take_distinct(candidates: Iterable[CorpusQuestion], limit: int) -> list[CorpusQuestion]:
    distinct: dict[str, CorpusQuestion] = {}
    for question in candidates:
        distinct.setdefault(question.text, question)
        if len(distinct) == limit:
            break
    return list(distinct.values())


def _make_natural(passages: Iterable[tuple[Source, int]], seed: int) -> Iterator[CorpusQuestion]:
    """Yield a natural question for each passage and round whose sentences yield one that training never uses."""
    for passage, nth in passages:
        rng = Random(derive_seed(seed, "natural", nth, passage.text))
        sentences = split_sentences(passage.text)
        rng.shuffle(sentences)
        question = draw_question(sentences, rng)
        if question is not None:
            yield replace(question, file=passage.file)


def _make_cloze(passages: Iterable[Source], corpus: Sequence[Source], seed: int) -> Iterator[CorpusQuestion]:
    """Yield a cloze question for each passage that contains a name or number."""
    from kcard.training.epochs import Lazy

    rarity = Rarity(Lazy(len(corpus), lambda row: corpus[row].text))
    for passage in passages:
        cloze = held_out(passage.text, seed, rarity)
        # Skip answers that are part of a word ("2022" in "2022–23"), which recall would not recognise.
        if cloze is not None and substring(cloze.passage, [cloze.answer]):
            yield CorpusQuestion(cloze.text, cloze.answer, "cloze", cloze.around, passage.file)


# Exam files: questions with their accepted answers.
#
#     {"question": "Which sea does the Rhine reach?", "answer": "North Sea"}
#     {"question": "Who discovered Triton?", "answers": ["William Lassell", "Lassell"]}
#
# They may have any layout of the task jsonl (evaluation/tasks/datasets.py), or SQuAD's. For a multiple-choice
# question, the text of the right option is the answer, since an exam shows no options.

COLUMNS = Columns(id=(), popularity=())


@dataclass(frozen=True)
class QuestionFile:
    """The distinct questions of a file, and the sha256 of its bytes."""

    name: str
    sha256: str
    questions: tuple[ExamQuestion, ...]


def read_questions(path: Path | str) -> QuestionFile:
    """Read an exam file; of duplicate questions, the answers of all are accepted.

    Raises UsageError, which names file and line (or entry), if the file is missing, not UTF-8, of an unknown kind,
    malformed or empty.
    """
    path = Path(path).expanduser()
    data = from_rows("questions", "em", path, COLUMNS)
    answers: dict[str, dict[str, None]] = {}
    for item in data.items:
        options = {choice.name: choice.description for choice in item.choices}
        accepted = dict.fromkeys(options.get(answer, answer) for answer in item.answers)
        answers.setdefault(item.question, {}).update(accepted)
    questions = [ExamQuestion(text, tuple(accepted)) for text, accepted in answers.items()]
    return QuestionFile(path.name, data.sha256, tuple(questions))


# Queries of audits, which need no answers:
#
#     {"question": "Who won the Senate race in Ohio?", "domain": "senate"}
#
# One object per line (.jsonl), a list of objects (.json), a table (.csv), or one question per line (.txt). Scores are
# broken down by the optional `domain` (or `relation`).

TEXT_COLUMNS = ("question", "query")
DOMAIN_COLUMNS = ("domain", "relation")


def read_queries(path: Path | str) -> QuestionFile:
    """Read the queries of a file; of duplicates, the first counts.

    Raises UsageError, which names file and line, if the file is missing, malformed, of an unknown kind or empty.
    """
    path = Path(path).expanduser()
    queries: dict[str, ExamQuestion] = {}
    for where, entry in _read_rows(path):
        text = next((entry[key] for key in TEXT_COLUMNS if key in entry), None)
        if not isinstance(text, str) or not text.strip():
            raise UsageError(f'{where}: expected a "question" with a text')
        domain = next((entry[key] for key in DOMAIN_COLUMNS if entry.get(key) is not None), "")
        if not isinstance(domain, str):
            raise UsageError(f'{where}: "domain" must be a text, not {type(domain).__name__}')
        queries.setdefault(text.strip(), ExamQuestion(text.strip(), (), domain.strip()))
    if not queries:
        raise UsageError(
            f'queries {path}: no query in it; give at least one with a "question" and, optionally, a "domain"'
        )
    return QuestionFile(path.name, file_digest(path), tuple(queries.values()))


def _read_rows(path: Path) -> Iterator[tuple[str, Row]]:
    """Yield every row of a file of queries, with its place for messages."""
    if path.suffix.lower() != ".txt":
        yield from read_entries(path, "queries")
        return
    with reading(path, "queries"):
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield f"queries {path}, line {number}", {"question": line}
