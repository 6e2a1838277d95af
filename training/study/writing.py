"""Study material written by an LLM: its replies, and the items in them that their passages support."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kcard.batches import batched
from kcard.concurrency import in_order
from kcard.errors import LLMError, RequestRefused
from kcard.protocols import LLM, Batching, Checker, Reader
from kcard.training.study.checks import checked
from kcard.training.study.item import StudyItem
from kcard.training.study.parsing import read_reply
from kcard.training.study.replies import Replies
from kcard.training.study.tasks import KINDS, Assignment

__all__ = ["Asked", "Material", "StudyTotals", "ask", "collect"]

# Requests in a row that fail, after which no more are made: each refused for what it holds, or for other reasons.
REFUSED, FAILED = 50, 5


@dataclass(frozen=True)
class Asked:
    """Requests: `made` now, of which `failed` have no reply (`why`: the last error), and `kept` from before.
    `tokens_in` and `tokens_out` are those of the replies that were made now, as far as the LLM tells them."""

    made: int
    kept: int
    failed: int = 0
    why: str = ""
    tokens_in: int = 0
    tokens_out: int = 0


@dataclass(frozen=True)
class Material:
    """`left_out`: how many items and lines of replies were left out, by reason."""

    items: Sequence[StudyItem]
    left_out: Mapping[str, int]


@dataclass(frozen=True)
class StudyTotals:
    """Items by kind, what was left out by reason, and the requests."""

    items: Mapping[str, int]
    left_out: Mapping[str, int]
    asked: Asked

    @classmethod
    def of(cls, asked: Asked, material: Material) -> "StudyTotals":
        return cls(dict(Counter(item.kind for item in material.items)), material.left_out, asked)


def ask(
    wanted: Sequence[Assignment],
    llm: LLM,
    replies: Replies,
    concurrency: int,
    progress: Callable[[int, int], None] | None = None,
) -> Asked:
    """Make the requests whose replies are missing, `concurrency` at a time. `progress` is called with (done, all).

    Raises LLMError where FAILED requests in a row fail, since the server is down then, or REFUSED are refused. Each
    reply is kept as soon as it is there.
    """
    missing = [assignment for assignment in wanted if replies.row(assignment) is None]
    kept, failed, refused_in_row, failed_in_row, why = len(wanted) - len(missing), 0, 0, 0, ""
    for done, error in enumerate(_outcomes(missing, llm, replies, concurrency), 1):
        if error is None:
            refused_in_row = failed_in_row = 0
        else:
            failed, why = failed + 1, str(error)
            refused_in_row += 1
            failed_in_row += not isinstance(error, RequestRefused)
            if failed_in_row == FAILED or refused_in_row == REFUSED:
                raise error
        if progress:
            progress(kept + done, len(wanted))
    made = [row for row in map(replies.row, missing) if row is not None]
    used = sum(row.tokens_in or 0 for row in made), sum(row.tokens_out or 0 for row in made)
    return Asked(len(missing), kept, failed, why, *used)


def _outcomes(
    missing: Sequence[Assignment], llm: LLM, replies: Replies, concurrency: int
) -> Iterator[LLMError | None]:
    """Of each request why it failed, or None where its reply is kept."""

    def one(assignment: Assignment) -> LLMError | None:
        try:
            replies.keep(assignment, llm.reply(assignment.request))
        except LLMError as error:
            return error
        return None

    if not isinstance(llm, Batching):
        yield from in_order(one, missing, concurrency)
        return
    for batch in batched(missing, concurrency):
        found = llm.reply_all([assignment.request for assignment in batch])
        for assignment, reply in zip(batch, found, strict=True):
            if isinstance(reply, LLMError):
                yield reply
            else:
                replies.keep(assignment, reply)
                yield None


def collect(
    wanted: Sequence[Assignment],
    replies: Replies,
    checker: Checker,
    reader: Reader,
    language: str | None = None,
) -> Material:
    """The items of the replies that their passages support, each text once; the others are counted. `language`: see
    checked."""
    left_out = Counter[str]()
    items: dict[tuple[str, str], StudyItem] = {}
    for assignment in wanted:
        row = replies.row(assignment)
        if row is None:
            continue
        found = read_reply(row.text, KINDS[assignment.task], assignment.digests, row.by, cut=row.cut)
        left_out.update(found.left_out)
        for item in found.items:
            key = item.kind, item.text.casefold()
            result = checked(item, assignment.texts, checker, reader, language)
            if isinstance(result, str):
                left_out[result] += 1
            elif key in items:
                left_out["said before"] += 1
            else:
                items[key] = result
    return Material([*items.values()], dict(left_out))
