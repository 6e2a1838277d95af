"""What an LLM wrote when it was asked for study material, read item by item."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from kcard.training.study.item import QUESTIONS, Kind, StudyItem

__all__ = ["ReadReply", "read_reply"]

LABELS = "direct|reverse|far|unanswerable|link|rewrite|implication|summary"
# "DIRECT: ...", also as an item of a list, in bold, in a row of a table or as a pair of JSON.
LINE = re.compile(rf"""[\s\d.)*#>|"'`\[{{-]*({LABELS})\b[\s*#\d"'`]*[:|]\W*?(\S.*)""", re.IGNORECASE)
BEGINS = re.compile(rf"\s+(?=[*#]*(?:{LABELS.upper()})\b[*#]*:)")
THINKING, THOUGHT = "<think>", "</think>"
OBJECT = re.compile(r"\{[^{}]*\}")
KIND_KEYS, TEXT_KEYS = ("kind", "type", "form", "label"), ("question", "text", "statement", "sentence")
MARKS = " *_`\"“”',|[]{}"
LONGEST = 600  # characters of a text
MOST = 40  # items of a reply: several times what is asked for


@dataclass(frozen=True)
class ReadReply:
    """The items of a reply, and what else was in it: how many, by reason."""

    items: Sequence[StudyItem]
    left_out: Mapping[str, int]


def read_reply(
    text: str, kinds: Sequence[Kind], passages: Sequence[str], by: str, *, cut: bool = False
) -> ReadReply:
    """The items of these kinds in a reply about passages with these digests, each once, on lines or in one.

    What a model thought before it replied (<think>) is passed over. `cut`: the reply ended at a limit of tokens, so
    its last line is not whole.
    """
    lines = _lines(text)
    unfinished = lines.pop() if cut and lines else ""
    items: dict[tuple[str, str], StudyItem] = {}
    left_out = Counter[str]({"lines that were cut off": bool(unfinished)})
    for line in lines:
        item = _item(line, kinds, tuple(passages), by)
        if item is None:
            left_out["lines in another form"] += 1
        elif (key := (item.kind, item.text.casefold())) in items:
            left_out["said before"] += 1
        elif len(items) == MOST:
            left_out[f"items after {MOST} of a reply"] += 1
        else:
            items[key] = item
    if not items:
        left_out = Counter({"replies without an item": 1})
    return ReadReply([*items.values()], {why: count for why, count in left_out.items() if count})


def _lines(text: str) -> list[str]:
    """Lines with letters in them; fences of code are no lines."""
    said = text.rpartition(THOUGHT)[2].partition(THINKING)[0]
    text = BEGINS.sub("\n", OBJECT.sub(_as_line, said))
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if any(map(str.isalpha, line)) and not line.startswith("```")]


def _as_line(found: re.Match[str]) -> str:
    """An object of JSON that is an item, as the line that it would be; other text as it is."""
    try:
        given = json.loads(found[0])
    except (ValueError, RecursionError):
        return found[0]
    kind, text = (next((given[key] for key in keys if key in given), "") for keys in (KIND_KEYS, TEXT_KEYS))
    answer = given.get("answer", "")
    if not (kind and text and all(isinstance(part, str) for part in (kind, text, answer))):
        return found[0]
    return "\n" + " ".join(f"{kind}: {text} | {answer}".split()).removesuffix(" |") + "\n"


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
