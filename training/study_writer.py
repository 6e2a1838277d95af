"""Have an LLM write study material about a corpus, and check it."""

import hashlib
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Literal, cast

from kcard.batching import FailureStreak, batched, in_order
from kcard.errors import LLMError, RequestRefused, UsageError
from kcard.events import Event, OnEvent, ignore
from kcard.interfaces import LLM, Checker, Pair, Reader
from kcard.io import append_rows, build
from kcard.text import detect, is_english, passage_digest, spaced_words, words
from kcard.training.embedded.pseudo_queries import Rarity, bare, entities
from kcard.training.study import QUESTIONS, Kind, StudyItem
from kcard.types import Reply, Request, Source

# The requests for a corpus: which passages, with which task.

Task = Literal["questions", "statements", "links"]
KINDS: Mapping[Task, tuple[Kind, ...]] = {
    "questions": ("direct", "reverse", "far", "unanswerable"),
    "statements": ("rewrite", "implication", "summary"),
    "links": ("link",),
}
MAX_SHARING_PASSAGES = 10  # a name links passages if at most this many share it
MIN_PASSAGE_WORDS = 12  # words of a passage, for it to get an assignment


@dataclass(frozen=True)
class Assignment:
    """One request: a task about one passage, or for links about two."""

    task: Task
    passages: tuple[Source, ...]

    @property
    def digests(self) -> tuple[str, ...]:
        return tuple(passage_digest(passage.text) for passage in self.passages)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the passages, with their headings."""
        return tuple(passage.in_context for passage in self.passages)

    @property
    def request(self) -> Request:
        return Request("study", self.task, self.texts)


def assignments(passages: Sequence[Source], tasks: Sequence[Task]) -> Iterator[Assignment]:
    """Yield the assignments of a corpus, passage by passage, links last. Passages of a few words are skipped."""
    long = [passage for passage in passages if len(passage.text.split()) >= MIN_PASSAGE_WORDS]
    for passage in long:
        for task in tasks:
            if task != "links":
                yield Assignment(task, (passage,))
    if "links" in tasks:
        for pair in linked_pairs(long):
            yield Assignment("links", pair)


def linked_pairs(passages: Sequence[Source]) -> Iterator[tuple[Source, Source]]:
    """Pair each passage with one that shares its rarest shared name; yield no pair twice."""
    names: list[set[str]] = []
    holding: defaultdict[str, list[int]] = defaultdict(list)
    for row, passage in enumerate(passages):
        row_names: set[str] = set()
        for start, end in entities(passage.text):
            row_names.update(map(bare, passage.text[start:end].split()))
        for name in row_names:
            holding[name].append(row)
        names.append(row_names)
    rarity, done = Rarity([passage.text for passage in passages]), set[tuple[int, int]]()
    for row, row_names in enumerate(names):
        shared = [
            name
            for name in row_names
            if 1 < len(holding[name]) <= MAX_SHARING_PASSAGES and name[:1].isupper()
        ]
        for name in sorted(shared, key=lambda name: (-rarity.weight(name), name)):
            pair = next(((row, other) for other in holding[name] if other > row), None)
            if pair is not None and pair not in done:
                done.add(pair)
                yield passages[pair[0]], passages[pair[1]]
                break


# Parsing the replies of an LLM into items.

LABELS = "direct|reverse|far|unanswerable|link|rewrite|implication|summary"
# "DIRECT: ...", also as an item of a list, in bold, in a row of a table or as a pair of JSON.
ITEM_LINE = re.compile(rf"""[\s\d.)*#>|"'`\[{{-]*({LABELS})\b[\s*#\d"'`]*[:|]\W*?(\S.*)""", re.IGNORECASE)
ITEM_START = re.compile(rf"\s+(?=[*#]*(?:{LABELS.upper()})\b[*#]*:)")
THINKING, THOUGHT = "<think>", "</think>"
JSON_OBJECT = re.compile(r"\{[^{}]*\}")
KIND_KEYS, TEXT_KEYS = ("kind", "type", "form", "label"), ("question", "text", "statement", "sentence")
MARKS = " *_`\"“”',|[]{}"
MAX_LINE_CHARACTERS = 600  # characters of a text
MAX_REPLY_ITEMS = 40  # items per reply, several times as many as requested


@dataclass(frozen=True)
class Material:
    """Accepted items, and how many other items and lines of replies were left out, by reason."""

    items: Sequence[StudyItem]
    left_out: Mapping[str, int]


def read_reply(
    text: str, kinds: Sequence[Kind], passages: Sequence[str], by: str, *, cut: bool = False
) -> Material:
    """Parse the items of these kinds in a reply about passages with these digests, without duplicates.

    What a model thought before it replied (<think>) is ignored. `cut`: the reply ended at the token limit, so its last
    line is incomplete.
    """
    # Drop thoughts and code fences; put each JSON object, and each item of a line with several, on a line of its own.
    reply = text.rpartition(THOUGHT)[2].partition(THINKING)[0]
    reply = JSON_OBJECT.sub(_as_line, reply)
    reply = ITEM_START.sub("\n", reply)
    lines = []
    for line in map(str.strip, reply.splitlines()):
        if any(map(str.isalpha, line)) and not line.startswith("```"):
            lines.append(line)
    unfinished = lines.pop() if cut and lines else ""
    items: dict[tuple[str, str], StudyItem] = {}
    left_out = Counter[str]({"lines that were cut off": bool(unfinished)})
    for line in lines:
        item = parse_item(line, kinds, tuple(passages), by)
        if item is None:
            left_out["lines in another form"] += 1
            continue
        key = item.kind, item.text.casefold()
        if key in items:
            left_out["said before"] += 1
        elif len(items) == MAX_REPLY_ITEMS:
            left_out[f"items after {MAX_REPLY_ITEMS} of a reply"] += 1
        else:
            items[key] = item
    if not items:
        left_out = Counter({"replies without an item": 1})
    return Material([*items.values()], {why: count for why, count in left_out.items() if count})


def _as_line(match: re.Match[str]) -> str:
    """Return a JSON object that is an item as a line of the usual form; other text unchanged."""
    try:
        data = json.loads(match[0])
    except (ValueError, RecursionError):
        return match[0]
    kind, text, answer = _first_of(data, KIND_KEYS), _first_of(data, TEXT_KEYS), data.get("answer", "")
    is_text = isinstance(kind, str) and isinstance(text, str) and isinstance(answer, str)
    if not (is_text and kind and text):
        return match[0]
    return "\n" + " ".join(f"{kind}: {text} | {answer}".split()).removesuffix(" |") + "\n"


def _first_of(data: Mapping[str, object], keys: Sequence[str]) -> object:
    """Return the value of the first of these keys that there is; "" if there is none."""
    for key in keys:
        if key in data:
            return data[key]
    return ""


def parse_item(line: str, kinds: Sequence[Kind], passages: tuple[str, ...], by: str) -> StudyItem | None:
    match = ITEM_LINE.fullmatch(line)
    if match is None or len(match[2]) > MAX_LINE_CHARACTERS:
        return None
    kind, text, answer = cast(Kind, match[1].lower()), match[2].strip(MARKS), ""
    if kind not in kinds:
        return None
    if kind in QUESTIONS:
        text, _, answer = text.partition("|")
        text, answer = text.strip(MARKS), answer.strip(MARKS)
    if kind == "unanswerable":
        answer = ""
    try:
        return StudyItem(kind, text, answer, passages, by)
    except ValueError:
        return None


# Checks that study material is supported by its passages; other items are left out, so that no card learns them.

# A passage does not state its implications, so the checker scores them lower. Of 200 of GPT-4.1's implications, .02
# reach this threshold with another paragraph of the same article.
MIN_SUPPORT, MIN_IMPLICATION_SUPPORT = 0.5, 0.25
MIN_TOPIC_COSINE = (
    0.1  # cosine of the sentence encoder; .99 of 150 people's questions exceed it with their own paragraphs
)
MENTION = re.compile(r"\b(?:the|this) (?:passage|text|paragraph|excerpt)\b", re.IGNORECASE)


def check_item(
    item: StudyItem, passages: Sequence[str], checker: Checker, reader: Reader, language: str | None = None
) -> StudyItem | str:
    """Return the item with its support by the texts of its passages, or the reason why it is left out.

    The answer to a question must occur in a passage and not in the question. The reader must find the answer to a
    direct question, and none to an unanswerable one; the wording of the other kinds is too hard for it. A statement is
    scored by the checker. Left out are also verbatim copies of the passage, which teach nothing, and items that mention
    "the text", which can't be understood without it. `language`: code of the passages' language; items detected to be
    in another one are left out.
    """
    text = "\n".join(passages)
    if language is not None and detect([item.text]) not in {language, None}:
        return "in another language"
    if any(found.lower() not in text.lower() for found in MENTION.findall(item.text)):
        return "mentions the text"
    if item.kind in QUESTIONS:
        return _flaw_of_question(item, text, reader, language) or item
    if spaced_words(item.text) in spaced_words(text):
        return "repeats the passage"
    support = float(checker.support([Pair(item.text, text)])[0])
    least = MIN_IMPLICATION_SUPPORT if item.kind == "implication" else MIN_SUPPORT
    return replace(item, support=round(support, 3)) if support >= least else "not supported by the passage"


def _flaw_of_question(item: StudyItem, text: str, reader: Reader, language: str | None) -> str:
    """Return why a question is left out; "" if it passes all checks."""
    if item.kind != "unanswerable":
        if spaced_words(item.answer) not in spaced_words(text):
            return "the answer does not stand in the passage"
        if spaced_words(item.answer) in spaced_words(item.text):
            return "the question gives the answer away"
    if language is not None and is_english(language):
        # The sentence encoder knows English only.
        from kcard.embedded.minilm import embed

        question_vector, text_vector = embed([item.text, text])
        if not float(question_vector @ text_vector) >= MIN_TOPIC_COSINE:
            return "about something else"
    if item.kind == "unanswerable":
        return "answered by the passage" if reader.extract(item.text, text) else ""
    if item.kind == "direct":
        answer = reader.extract(item.text, text)
        if not answer or not set(words(answer)) & set(words(item.answer)):
            return "the reader finds another answer or none"
    return ""


# The replies of an LLM, kept on disk so that no request is made twice.


@dataclass(frozen=True)
class ReplyRow:
    """One reply. `request`: digest of everything that it depends on: the LLM's name, the task and the texts. `cut`: see
    Reply."""

    request: str
    task: str
    by: str
    passages: tuple[str, ...]
    text: str
    tokens_in: int | None = None
    tokens_out: int | None = None
    cut: bool = False


@dataclass
class Replies:
    """The replies in a file of JSON lines. `by`: the LLM. Several threads may add replies at a time."""

    path: Path
    by: str
    _rows: dict[str, ReplyRow] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    @classmethod
    def read(cls, path: Path, by: str) -> "Replies":
        """Read the replies of a file, if there is one. An incomplete last line is removed, and invalid lines are
        ignored. Raises UsageError if the file can't be read."""
        replies = cls(path, by)
        if not path.exists():
            return replies
        try:
            content = path.read_bytes()
            os.truncate(path, content.rfind(b"\n") + 1)
        except OSError as error:
            raise UsageError(f"{path} can't be read: {error.strerror}") from error
        for line in content.splitlines():
            try:
                row = build(ReplyRow, json.loads(line))
            except (ValueError, TypeError):
                continue
            replies._rows[row.request] = row
        return replies

    def __iter__(self) -> Iterator[ReplyRow]:
        return iter([*self._rows.values()])

    def row(self, assignment: Assignment) -> ReplyRow | None:
        return self._rows.get(self._key(assignment))

    def add(self, assignment: Assignment, reply: Reply) -> None:
        """Store a reply, on disk before returning. Lone surrogates, which UTF-8 can't encode, become "?"."""
        row = ReplyRow(
            self._key(assignment),
            assignment.task,
            self.by,
            assignment.digests,
            reply.text.encode("utf-8", "replace").decode(),
            reply.tokens_in,
            reply.tokens_out,
            reply.cut,
        )
        with self._lock:
            append_rows(self.path, [vars(row)])
            self._rows[row.request] = row

    def _key(self, assignment: Assignment) -> str:
        key = json.dumps([self.by, assignment.task, *assignment.texts])
        return hashlib.sha256(key.encode()).hexdigest()


# Consecutive failures after which no more requests are made: refusals because of content, and other failures.
MAX_REFUSALS, MAX_FAILURES = 50, 5


@dataclass(frozen=True)
class RequestTotals:
    """Requests `made` now, of which `failed` have no reply (`why`: the last error), and replies `kept` from before.
    `tokens_in` and `tokens_out` are of the new replies, as far as the LLM reports them."""

    made: int
    kept: int
    failed: int = 0
    why: str = ""
    tokens_in: int = 0
    tokens_out: int = 0


@dataclass(frozen=True)
class StudyTotals:
    """Items by kind, what was left out by reason, and the requests."""

    items: Mapping[str, int]
    left_out: Mapping[str, int]
    asked: RequestTotals

    @classmethod
    def of(cls, asked: RequestTotals, material: Material) -> "StudyTotals":
        return cls(dict(Counter(item.kind for item in material.items)), material.left_out, asked)


def ask(
    requests: Sequence[Assignment],
    llm: LLM,
    replies: Replies,
    concurrency: int,
    on_event: OnEvent = ignore,
) -> RequestTotals:
    """Make the requests whose replies are missing, `concurrency` at a time. `on_event` is called with their
    number done.

    Raises LLMError after MAX_FAILURES consecutive failures, since the server is then down, or MAX_REFUSALS consecutive
    refusals. Each reply is written to disk as soon as it arrives.
    """
    missing = [assignment for assignment in requests if replies.row(assignment) is None]
    before, failed, why = len(requests) - len(missing), 0, ""
    failures, refusals = FailureStreak(MAX_FAILURES), FailureStreak(MAX_REFUSALS)
    for done, error in enumerate(_request_all(missing, llm, replies, concurrency), 1):
        refusals.record(error is not None)
        if not isinstance(error, RequestRefused):
            failures.record(error is not None)
        if error is not None:
            failed, why = failed + 1, str(error)
            if failures.is_over or refusals.is_over:
                raise error
        on_event(Event("writing", done=before + done, total=len(requests)))
    rows = [row for row in map(replies.row, missing) if row is not None]
    used = sum(row.tokens_in or 0 for row in rows), sum(row.tokens_out or 0 for row in rows)
    return RequestTotals(len(missing), before, failed, why, *used)


def _request_all(
    missing: Sequence[Assignment], llm: LLM, replies: Replies, concurrency: int
) -> Iterator[LLMError | None]:
    """Yield for each request why it failed, or None once its reply is on disk."""

    def request_reply(assignment: Assignment) -> LLMError | None:
        try:
            replies.add(assignment, llm.reply(assignment.request))
        except LLMError as error:
            return error
        return None

    if not llm.is_batched:
        yield from in_order(request_reply, missing, concurrency)
        return
    for batch in batched(missing, concurrency):
        outcomes = llm.reply_all([assignment.request for assignment in batch])
        for assignment, reply in zip(batch, outcomes, strict=True):
            if isinstance(reply, LLMError):
                yield reply
            else:
                replies.add(assignment, reply)
                yield None


def collect(
    requests: Sequence[Assignment],
    replies: Replies,
    checker: Checker,
    reader: Reader,
    language: str | None = None,
) -> Material:
    """Collect the items of the replies that their passages support, without duplicates; the others are counted.
    `language`: see check_item."""
    left_out = Counter[str]()
    items: dict[tuple[str, str], StudyItem] = {}
    for assignment in requests:
        row = replies.row(assignment)
        if row is None:
            continue
        reply = read_reply(row.text, KINDS[assignment.task], assignment.digests, row.by, cut=row.cut)
        left_out.update(reply.left_out)
        for item in reply.items:
            key = item.kind, item.text.casefold()
            result = check_item(item, assignment.texts, checker, reader, language)
            if isinstance(result, str):
                left_out[result] += 1
            elif key in items:
                left_out["said before"] += 1
            else:
                items[key] = result
    return Material([*items.values()], dict(left_out))
