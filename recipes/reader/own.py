"""Questions of our own about manuals of Debian and npm packages (questions/questions.jsonl, questions/manuals.toml) and
about encyclopedic paragraphs (questions/paragraphs.jsonl).

They were written by readers of the texts, in other words than theirs, of every type, a tenth of them without an
answer there. The texts' sentences are not in the files: what a question's answer rests on is named by its length in
words and a hash of them, and sought in the manual as kcard reads it, or in the paragraphs of its title.
"""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kcard.text import sentence_spans as sentences
from kcard.types import Source
from recipes.packages import Manual, manuals, read
from recipes.reader.example import Reading, Spans
from recipes.reader.near import Near

FOLDER = Path(__file__).parent / "questions"
NEAR = 8
IN_SENTENCES = ("yes/no", "how", "why", "list")
WORD = re.compile(r"[a-z0-9]+")
SHORT = 4  # characters of an answer that says little where it stands


@dataclass(frozen=True)
class Words:
    """So many words in a row, known by the beginning of the hash of their lower case."""

    count: int
    digest: str

    def place(self, text: str) -> tuple[int, int] | None:
        """Where they stand in a text; None where they do not."""
        words = list(WORD.finditer(text.lower()))
        for at in range(len(words) - self.count + 1):
            fragment = " ".join(match.group() for match in words[at : at + self.count])
            if hashlib.sha256(fragment.encode()).hexdigest().startswith(self.digest):
                return words[at].start(), words[at + self.count - 1].end()
        return None


def listed() -> dict[str, list[Manual]]:
    """The packages of each manual; some come in two."""
    by_name: dict[str, list[Manual]] = defaultdict(list)
    names = {row["manual"] for row in read_questions()}
    for name, manual in manuals(FOLDER / "manuals.toml").items():
        by_name[name if name in names else name.partition("-")[0]].append(manual)
    return by_name


def read_questions(name: str = "questions.jsonl") -> list[dict[str, Any]]:
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def about_paragraphs(groups: Iterable[Sequence[tuple[str, str]]]) -> list[Reading]:
    """All to train on. `groups`: (title, text) of paragraphs; those of one group are about like things."""
    about: dict[str, tuple[str, Sequence[tuple[str, str]]]] = {}
    for group in groups:
        for title, text in group:
            about.setdefault(title, (text, group))
    readings: list[Reading] = []
    for row in read_questions("paragraphs.jsonl"):
        text, group = about[row["title"]]
        near = Near([other for other in group if other[1] != text])
        readings += _reading(row, row["title"], [Source(text, section=row["title"])], near)
    return readings


def readings(packages: Path) -> tuple[list[Reading], list[Reading]]:
    """(to train on, held out: all of nine manuals). `packages`: a folder with the packages, unpacked."""
    questions: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in read_questions():
        questions[row["manual"]].append(row)
    halves: tuple[list[Reading], list[Reading]] = ([], [])
    for name, parts in sorted(listed().items()):
        corpus = [passage for part in parts for passage in read(part, packages)]
        near = Near(list(dict.fromkeys((passage.section, passage.text) for passage in corpus)))
        by_file: dict[str, list[Source]] = defaultdict(list)
        for passage in corpus:
            by_file[passage.file].append(passage)
        for row in questions[name]:
            halves[parts[0].held].extend(_reading(row, name, by_file[row["file"]], near))
    return halves


def _reading(row: Mapping[str, Any], group: str, passages: Sequence[Source], near: Near) -> Iterator[Reading]:
    """Nothing where the place of the answer can't be found."""
    question, kind, answer = row["question"], row["type"], row["answer"]
    if kind == "unanswerable":
        yield Reading(question, "", "", False, group=group, near=near.of(question, NEAR, lambda _: False))
        return
    place = _place(passages, *row["evidence"])
    if place is None:
        return
    passage, evidence = place
    spans: Spans = ()
    if kind not in IN_SENTENCES:
        inside = [span for a, b in evidence for span in _places_of(passage.text, answer, a, b)]
        spans = tuple(inside or _places_of(passage.text, answer, 0, len(passage.text)))
    telling = answer if spans and len(answer) > SHORT else None
    others = near.of(
        question, NEAR, lambda text: text == passage.text or (telling is not None and telling in text)
    )
    yield Reading(question, passage.section, passage.text, True, spans, evidence, group, others)


def _place(passages: Sequence[Source], count: int, digest: str) -> tuple[Source, Spans] | None:
    """The passage in which words with this hash stand in a row, and the sentences that they are of."""
    for passage in passages:
        shift = len(passage.section) + 2 if passage.section else 0
        if place := Words(count, digest).place(passage.in_context):
            start, end = place[0] - shift, place[1] - shift
            inside = [s for s in sentences(passage.text) if s[0] < end and s[1] > start]
            return (passage, tuple(inside)) if inside else None
    return None


def _places_of(text: str, answer: str, low: int, high: int) -> list[tuple[int, int]]:
    """Where the words of an answer stand in a row between two places."""
    words, needed = list(WORD.finditer(text.lower())), WORD.findall(answer.lower())
    places = []
    for at in range(len(words) - len(needed) + 1):
        part = words[at : at + len(needed)]
        if needed and [match.group() for match in part] == needed:
            start, end = part[0].start(), part[-1].end()
            if low <= start and end <= high:
                places.append((start, end))
    return places
