"""Study material that an LLM wrote about a corpus, and the queries made from it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from kcard.errors import UsageError
from kcard.events import OnEvent, ignore, note
from kcard.io import build, json_line, opened, parse, reading, write_text
from kcard.manifest import file_digest
from kcard.text import passage_digest, spaced_words, words
from kcard.training.corpus import statements
from kcard.types import Source

# Study material: questions and statements about a corpus, as JSON lines that people can read and edit.

Kind = Literal["direct", "reverse", "far", "unanswerable", "link", "rewrite", "implication", "summary"]
MAX_TEXT_CHARACTERS = 2000  # characters of a text, several times as many as a small model reads
BLANKS = b"\xef\xbb\xbf \t\r\n"  # with the mark that Windows puts at the beginning of a file
MAX_REPORTED_LINES = 5  # broken lines that are reported one by one
QUESTIONS: tuple[Kind, ...] = ("direct", "reverse", "far", "unanswerable", "link")


@dataclass(frozen=True)
class StudyItem:
    """Something to learn about a passage (MeMo; SEAL, section 3).

    kind      direct: a question in the passage's words; reverse: one from a detail to what it belongs to; far: one in
              other words; unanswerable: one that the passage leaves open; link: one that needs two passages; rewrite: a
              statement that stands alone; implication: what follows; summary: what it says in short
    text      the question or statement
    answer    of a question; "" for statements and unanswerable questions
    passages  the digest (kcard.text.passage_digest) of each passage that it is about
    by        the LLM that wrote it, such as openai:gpt-4.1
    support   how far the passages support it, in [0, 1]; None if that was not measured
    """

    kind: Kind
    text: str
    answer: str = ""
    passages: tuple[str, ...] = ()
    by: str = ""
    support: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind {self.kind!r} is not one of {', '.join(get_args(Kind))}")
        if not self.text.strip():
            raise ValueError("text is empty")
        if max(len(self.text), len(self.answer)) > MAX_TEXT_CHARACTERS:
            raise ValueError(f"text or answer has more than {MAX_TEXT_CHARACTERS:,} characters")
        if self.support is not None and not 0 <= self.support <= 1:
            raise ValueError(f"support is {self.support}: it must be from 0 to 1")
        if bool(self.answer.strip()) != (self.kind in QUESTIONS and self.kind != "unanswerable"):
            raise ValueError(
                f"answer is {self.answer!r}: direct, reverse, far and link have one, other kinds have none"
            )


@dataclass(frozen=True)
class Study:
    """The items of a file; `broken`: the number of each invalid line, and why."""

    path: Path
    items: Sequence[StudyItem]
    broken: Sequence[str] = ()

    @property
    def record(self) -> Mapping[str, Any]:
        """What the manifest of a card says that is trained on them."""
        return {"study_sha256": file_digest(self.path)}


def read_study(path: Path, on_event: OnEvent = ignore) -> Study:
    """Read study material from a file, compressed if its name ends in .gz; invalid and repeated lines are left out,
    listed, and reported. Raises UsageError for a file that can't be read or holds no item."""
    items, broken = dict[tuple[str, str], StudyItem](), []
    with reading(path, "study material"), opened(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip(BLANKS):
                continue
            try:
                item = build(StudyItem, parse(line.decode("utf-8-sig")))
            except UnicodeDecodeError:
                broken.append(f"line {number}: not UTF-8 text")
            except (ValueError, TypeError) as error:
                broken.append(f"line {number}: {error}")
            else:
                if items.setdefault((item.kind, item.text.casefold()), item) is not item:
                    broken.append(f"line {number}: repeats an earlier item")
    if not items:
        raise UsageError(f"study material {path} contains no valid item{f' ({broken[0]})' if broken else ''}")
    for why in broken[:MAX_REPORTED_LINES]:
        on_event(note(f"{path}, {why}: left out"))
    if len(broken) > MAX_REPORTED_LINES:
        on_event(note(f"{path}: {len(broken) - MAX_REPORTED_LINES} more lines left out"))
    return Study(path, [*items.values()], broken)


def write_study(path: Path, items: Iterable[StudyItem]) -> None:
    """Write study material as JSON lines."""
    write_text(path, b"".join(map(json_line, map(asdict, items))).decode(), parents=True)


# The queries that a card is trained on.

MIN_COSINE = 0.4  # cosine of the sentence encoder
# Reasons why no query can be made from an item.
NOT_IN_CORPUS, UNANSWERABLE = "about passages that are not in the corpus", "that the passage leaves open"
NOT_ANSWERED = "that no statement of their passage answers or comes near to"


@dataclass(frozen=True)
class StudyQueries:
    """Queries by the text of the statement that they ask for. `record`: for the card's manifest."""

    queries: Mapping[str, Sequence[str]] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)


def make_study_queries(study: Study | None, passages: Iterable[Source], on_event: OnEvent) -> StudyQueries:
    """Make queries of study material, none without it; items that can't be used are reported.

    Raises UsageError if no item is about the corpus.
    """
    if study is None:
        return StudyQueries()
    queries, unused = match_queries(study.items, passages)
    count = sum(map(len, queries.values()))
    if unused.get(NOT_IN_CORPUS) == len(study.items):
        raise UsageError(
            f"study material {study.path}: none of its {len(study.items):,} items is about a passage of the corpus: it "
            "was made of another corpus or an earlier state of this one; make it again with `kcard study`"
        )
    left_out = "".join(f"; left out: {number:,} {why}" for why, number in unused.items())
    on_event(note(f"study material: {count:,} queries out of {len(study.items):,} items{left_out}"))
    return StudyQueries(queries, {**study.record, "study_items": count})


def match_queries(
    items: Iterable[StudyItem], passages: Iterable[Source]
) -> tuple[Mapping[str, Sequence[str]], Mapping[str, int]]:
    """Match items to statements of the corpus: questions to the statement that answers them, and paraphrases, which to
    a sentence encoder are like questions in other words. Return the queries for each statement, by its text, and how
    many items give none, by reason.

    Of a passage's statements, a question is matched to the one that contains its answer and shares most words with it,
    a paraphrase to the nearest one, if the cosine is MIN_COSINE or more.
    """
    by_passage: defaultdict[str, list[StudyItem]] = defaultdict(list)
    unused = dict[StudyItem, str]()
    for item in items:
        unused[item] = NOT_IN_CORPUS
        for digest in item.passages:
            by_passage[digest].append(item)
    by_statement: defaultdict[str, list[str]] = defaultdict(list)
    for passage in passages:
        about = by_passage.get(passage_digest(passage.text))
        if about:
            texts = [statement.text for statement in statements([passage])]
            for text, item in zip(place_items(about, texts), about, strict=True):
                if text is not None:
                    by_statement[text].append(item.text)
                    unused.pop(item, None)
                elif item in unused:
                    unused[item] = UNANSWERABLE if item.kind == "unanswerable" else NOT_ANSWERED
    return dict(by_statement), dict(Counter(unused.values()))


def place_items(items: Sequence[StudyItem], texts: Sequence[str]) -> list[str | None]:
    """Match each item about a passage to one of `texts`, the passage's statements; None if none matches."""
    stated = [item.text for item in items if item.kind not in QUESTIONS]
    nearest: list[str | None] = []
    if stated:
        from kcard.embedded.minilm import embed

        cosines = embed(stated) @ embed(texts).T
        nearest = [texts[row.argmax()] if row.max() >= MIN_COSINE else None for row in cosines]
    near = iter(nearest)
    places: list[str | None] = []
    for item in items:
        if item.kind not in QUESTIONS:
            places.append(next(near))
        elif not item.answer:
            places.append(None)
        else:
            answer, question_words = spaced_words(item.answer), set(words(item.text))
            holding = [text for text in texts if answer in spaced_words(text)]
            places.append(max(holding, key=lambda text: len(question_words & set(words(text))), default=None))
    return places
