"""What an LLM wrote when it was asked for study material, read item by item."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from kcard.training.study.item import QUESTIONS, Kind, StudyItem

__all__ = ["ReadReply", "read_reply"]

LABELS = "direct|reverse|far|unanswerable|link|rewrite|implication|summary"
# "DIRECT: ...", also as an item of a list or in bold.
LINE = re.compile(rf"[\s\d.)*#-]*({LABELS})\b[\s*#\d]*:\W*?(\S.*)", re.IGNORECASE)
BEGINS = re.compile(rf"\s+(?=[*#]*(?:{LABELS.upper()})\b[*#]*:)")
MARKS = ' *_`"“”'
LONGEST = 600  # characters of a text


@dataclass(frozen=True)
class ReadReply:
    """The items of a reply, and its lines that are none."""

    items: Sequence[StudyItem]
    unread: Sequence[str]


def read_reply(text: str, kinds: Sequence[Kind], passages: Sequence[str], by: str) -> ReadReply:
    """The items of these kinds in a reply about passages with these digests, each once, on lines or in one."""
    items: dict[tuple[str, str], StudyItem] = {}
    unread = []
    for line in filter(None, map(str.strip, BEGINS.sub("\n", text).splitlines())):
        item = _item(line, kinds, tuple(passages), by)
        if item is None:
            unread.append(line)
        else:
            items.setdefault((item.kind, item.text.casefold()), item)
    return ReadReply([*items.values()], unread)


def _item(line: str, kinds: Sequence[Kind], passages: tuple[str, ...], by: str) -> StudyItem | None:
    found = LINE.fullmatch(line)
    if found is None or len(found[2]) > LONGEST:
        return None
    kind, text, answer = cast(Kind, found[1].lower()), found[2].strip(MARKS), ""
    if kind not in kinds:
        return None
    if kind in QUESTIONS:
        text, _, answer = (part.strip(MARKS) for part in text.partition("|"))
        answer = "" if kind == "unanswerable" else answer
    try:
        return StudyItem(kind, text, answer, passages, by)
    except ValueError:
        return None
