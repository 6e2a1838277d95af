"""Study material written by an LLM: its replies, and the items in them that their passages support."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kcard.concurrency import in_order
from kcard.errors import LLMError
from kcard.protocols import LLM, Checker, Reader
from kcard.request import Reply
from kcard.training.study.checks import checked
from kcard.training.study.item import StudyItem
from kcard.training.study.parsing import read_reply
from kcard.training.study.replies import Replies, ReplyRow
from kcard.training.study.tasks import KINDS, Assignment

__all__ = ["Asked", "Material", "StudyTotals", "ask", "collect"]

FAILURES = 5  # requests in a row, after which no more are made


@dataclass(frozen=True)
class Asked:
    """Requests: `made` now, of which `failed` have no reply (`why`: the last error), and `kept` from before."""

    made: int
    kept: int
    failed: int = 0
    why: str = ""


@dataclass(frozen=True)
class Material:
    """`left_out`: how many items and lines of replies were left out, by reason."""

    items: Sequence[StudyItem]
    left_out: Mapping[str, int]


@dataclass(frozen=True)
class StudyTotals:
    """Items by kind, what was left out by reason, requests, and the tokens of all replies, where the LLM tells them."""

    items: Mapping[str, int]
    left_out: Mapping[str, int]
    asked: Asked
    tokens_in: int
    tokens_out: int

    @classmethod
    def of(cls, asked: Asked, material: Material, rows: Sequence[ReplyRow]) -> "StudyTotals":
        return cls(
            dict(Counter(item.kind for item in material.items)),
            material.left_out,
            asked,
            sum(row.tokens_in or 0 for row in rows),
            sum(row.tokens_out or 0 for row in rows),
        )


def ask(
    wanted: Sequence[Assignment],
    llm: LLM,
    replies: Replies,
    concurrency: int,
    progress: Callable[[int, int], None] | None = None,
) -> Asked:
    """Make the requests whose replies are missing. `progress` is called with (done, all).

    Raises LLMError after FAILURES in a row: then the server is down, or refuses. Replies until then are kept.
    """
    missing = [assignment for assignment in wanted if replies.row(assignment) is None]
    kept, failed, row, why = len(wanted) - len(missing), 0, 0, ""

    def outcome(assignment: Assignment) -> Reply | LLMError:
        try:
            return llm.reply(assignment.request)
        except LLMError as error:
            return error

    for done, found in enumerate(in_order(outcome, missing, concurrency)):
        if isinstance(found, LLMError):
            failed, row, why = failed + 1, row + 1, str(found)
            if row == FAILURES:
                raise found
        else:
            row = 0
            replies.keep(missing[done], found)
        if progress:
            progress(kept + done + 1, len(wanted))
    return Asked(len(missing), kept, failed, why)


def collect(wanted: Sequence[Assignment], replies: Replies, checker: Checker, reader: Reader) -> Material:
    """The items of the replies that their passages support, each text once; the others are counted."""
    left_out = Counter[str]()
    items: dict[tuple[str, str], StudyItem] = {}
    for assignment in wanted:
        row = replies.row(assignment)
        if row is None:
            continue
        found = read_reply(row.text, KINDS[assignment.task], assignment.digests, row.by)
        left_out["lines in another form"] += len(found.unread)
        left_out["replies without a line"] += not (found.items or found.unread)
        for item in found.items:
            result, key = checked(item, assignment.texts, checker, reader), (item.kind, item.text.casefold())
            if isinstance(result, str):
                left_out[result] += 1
            elif key in items:
                left_out["said before"] += 1
            else:
                items[key] = result
    return Material([*items.values()], {why: count for why, count in left_out.items() if count})
