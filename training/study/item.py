"""Study material: questions and statements made of a corpus, as JSON lines that people can read and edit."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

from kcard.errors import UsageError
from kcard.files import write_text
from kcard.json_values import build, parse
from kcard.rows import json_line, opened, reading

__all__ = ["QUESTIONS", "Kind", "Study", "StudyItem", "read_study", "write_study"]

Kind = Literal["direct", "reverse", "far", "unanswerable", "link", "rewrite", "implication", "summary"]
LONGEST = 2000  # characters of a text, several times what a small model reads
WHITE = b"\xef\xbb\xbf \t\r\n"  # with the mark that Windows puts at the beginning of a file
QUESTIONS: tuple[Kind, ...] = ("direct", "reverse", "far", "unanswerable", "link")


@dataclass(frozen=True)
class StudyItem:
    """Something to learn of a passage (MeMo; SEAL, section 3).

    kind      direct: a question in the passage's words; reverse: one from a detail to what it belongs to; far: one in
              other words; unanswerable: one that the passage leaves open; link: one that needs two passages; rewrite: a
              statement that stands alone; implication: what follows; summary: what it says in short
    text      the question or statement
    answer    of a question; "" for a statement and where there is none
    passages  the digest (kcard.words.passage_digest) of each passage that it is about
    by        what wrote it, such as openai:gpt-4.1
    support   how far the passages support it, in [0, 1]; None where that was not measured
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
        if max(len(self.text), len(self.answer)) > LONGEST:
            raise ValueError(f"text or answer has more than {LONGEST:,} characters")
        if self.support is not None and not 0 <= self.support <= 1:
            raise ValueError(f"support is {self.support}: it must be from 0 to 1")
        if bool(self.answer.strip()) != (self.kind in QUESTIONS and self.kind != "unanswerable"):
            raise ValueError(
                f"answer is {self.answer!r}: direct, reverse, far and link have one, other kinds have none"
            )


@dataclass(frozen=True)
class Study:
    """`broken`: for each line that is no item, its number and why."""

    items: Sequence[StudyItem]
    broken: Sequence[str] = ()


def read_study(path: Path) -> Study:
    """Study material from a file, compressed if its name ends in .gz; lines that are no items or repeat one are left
    out and told of. Raises UsageError for a file that can't be read or holds no item."""
    items, broken = dict[tuple[str, str], StudyItem](), []
    with reading(path, "study material"), opened(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip(WHITE):
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
        raise UsageError(f"study material {path} holds no item{f' ({broken[0]})' if broken else ''}")
    return Study([*items.values()], broken)


def write_study(path: Path, items: Iterable[StudyItem]) -> None:
    write_text(path, b"".join(map(json_line, map(asdict, items))).decode(), parents=True)
