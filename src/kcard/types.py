"""The values that questions, requests and answers are made of."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from string import ascii_uppercase
from typing import Any, Literal

from kcard.errors import UsageError
from kcard.io import parse

__all__ = [
    "EXPECTED",
    "Answer",
    "Choice",
    "Citation",
    "Decision",
    "Example",
    "Kind",
    "Passage",
    "Question",
    "Quote",
    "Reply",
    "Request",
    "Sampling",
    "Source",
    "TokenScores",
    "Turn",
    "Usage",
    "checked",
    "choices_of",
    "derive_seed",
    "distinct_texts",
]


# How documents are sampled, and the one place that derives seeds.


@dataclass(frozen=True)
class Sampling:
    """Decoding settings of a card. `temperature` 0 is greedy; `tokens` is the longest document in tokens."""

    temperature: float = 1.0
    tokens: int = 100
    top_k: int = 50
    seed: int = 0


def derive_seed(*parts: str | int) -> int:
    """Derive a 63-bit seed from `parts`, such as (seed, question, card, document number).

    It depends on nothing else, so a document does not change with the batch that it is written in.
    """
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


# What an LLM is asked, as data: no backend ever parses a prompt that kcard itself wrote.

Kind = Literal["need", "what", "choose", "answer", "document", "knowledge", "recite", "study"]


@dataclass(frozen=True)
class Choice:
    """Something to choose from: a card (name, description) or an option of a question (letter, text).

    `date`: ISO date up to which a card's knowledge speaks; None where it is not known.
    """

    name: str
    description: str
    date: str | None = None


@dataclass(frozen=True)
class Example:
    """An in-context example for one kind of request: question, knowledge shown with it, and the reply.

    choices  the options (letter, text) of a multiple-choice question, of which the reply is a letter
    """

    kind: Kind
    question: str
    reply: str
    knowledge: tuple[str, ...] = ()
    choices: tuple[Choice, ...] = ()


@dataclass(frozen=True)
class Turn:
    """What the LLM was asked before about the same question, and what it replied (Knowledge Card, algorithm 2).

    reply      of `need`, Yes or No, a yes meaning that more is needed; empty where the LLM said nothing
    template   see Request
    choices    the cards that `choose` offered
    documents  how many passages of Request.knowledge came after this turn, beyond those of earlier turns
    """

    kind: Literal["need", "what", "choose"]
    reply: str
    template: int = 0
    choices: tuple[Choice, ...] = ()
    documents: int = 0


@dataclass(frozen=True)
class Request:
    """One request to an LLM.

    kind      need: does the LLM need more information? what: which kind of information?
              choose: which of `choices` (cards)? answer: the answer, given `knowledge`; with `choices`,
              one of them (multiple choice). document: a text that helps to answer the question (GenRead); knowledge:
              a statement that does (generated knowledge prompting); recite: a passage from memory that holds the
              answer (RECITE); study: study material about `knowledge`, where `question` names what is wanted
              (kcard.training.study_writer)
    headings  what stands over each of `knowledge`, which begins with it ("heading: text"), "" where nothing does;
              empty: of none it is known
    choices   of `choose`, the cards; of any other kind, the options (letter, text) of the question
    turns     what went before, oldest first; empty: nothing, or a mode whose requests stand alone (bottom-up)
    template  which wording of a `need` request to use, from 0 (see llms/prompts.py); in the examples, and in
              Reply.yes, a yes means that more is needed, whatever it means in the wording
    draft     only a short `answer` is wanted, the likeliest, with the scores of its tokens (Reply.tokens)
    sample    which of several replies to the same request, from 0; each is drawn with a seed of its own
    temperature  at which the reply is drawn, at least 0; None: the backend's
    """

    kind: Kind
    question: str
    knowledge: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()
    choices: tuple[Choice, ...] = ()
    turns: tuple[Turn, ...] = ()
    template: int = 0
    draft: bool = False
    sample: int = 0
    temperature: float | None = None
    headings: tuple[str, ...] = ()

    @property
    def shots(self) -> tuple[Example, ...]:
        """The examples that belong to it: of its kind, and for an answer, with options where it has some."""
        own = tuple(example for example in self.examples if example.kind == self.kind)
        if self.kind != "answer":
            return own
        return tuple(example for example in own if bool(example.choices) == bool(self.choices))


@dataclass(frozen=True)
class TokenScores:
    """Scores of one token of a reply: log-probability, at most 0; probability margin between the two likeliest
    tokens, in [0, 1]; entropy of the next-token distribution, in nats, at least 0."""

    log_probability: float
    margin: float
    entropy: float


@dataclass(frozen=True)
class Quote:
    """A part of the knowledge, word for word: `passage` is its number in Request.knowledge."""

    text: str
    passage: int


@dataclass(frozen=True)
class Reply:
    """What the LLM said. `yes`, only for `need`: the probability in [0, 1] that more information is needed.

    `tokens_in` and `tokens_out` are what the request and the reply took; None where the backend does not tell.
    `tokens`, only for a draft: the scores of its tokens; None where the backend gives none.
    `confidence`, of an answer: the probability in [0, 1] that it is right; None where the backend gives none.
    `choice`, of an answer to a multiple-choice question: the letter of the chosen option, "" where none was chosen;
    None where the backend leaves it to be read from the text.
    `known`: False where the answer is that the LLM does not know. `quote`: what the answer rests on; where nothing is
    known, what comes nearest. `remark`: a sentence for the user on how the reply came about. `cut`: it ended where the
    backend's limit of tokens was reached, not where the LLM would have ended it.
    """

    text: str
    yes: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens: tuple[TokenScores, ...] | None = None
    confidence: float | None = None
    choice: str | None = None
    known: bool = True
    quote: Quote | None = None
    remark: str = ""
    cut: bool = False


# A question with what belongs to it alone: the options to choose from, and demonstrations.


@dataclass(frozen=True)
class Question:
    """A question to a pipeline or baseline; a bare text is one without options and demonstrations.

    choices   the options (letter, text) of a multiple-choice question, whose answer is one of the letters; empty for
              an open question
    examples  demonstrations for this question, the nearest one last, in place of the built-in ones; of those that do
              not fit into the LLM's window the first are dropped first
    """

    text: str
    choices: tuple[Choice, ...] = ()
    examples: tuple[Example, ...] = ()


def checked(question: str | Question) -> Question:
    """Return the question, a bare text as one.

    Raises UsageError unless its text is one that UTF-8 can hold, and its options are none, or several with a letter
    and a text each, no letter twice.
    """
    question = Question(question) if isinstance(question, str) else question
    if not question.text.strip():
        raise UsageError("the question is empty")
    try:
        question.text.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"the question {question.text[:60]!a} is not UTF-8 text: encode it as UTF-8"
        ) from None
    choices = question.choices
    if len(choices) == 1:
        raise UsageError(
            f"there is one option, {choices[0].name!r}, to choose from: give two or more, or none"
        )
    for choice in choices:
        if not choice.name.strip() or not choice.description.strip():
            raise UsageError(f"option {choice.name!r} is {choice.description!r}: give it a letter and a text")
    letters = Counter(choice.name.casefold() for choice in choices)
    for choice in choices:
        if letters[choice.name.casefold()] > 1:
            raise UsageError(
                f"{letters[choice.name.casefold()]} options have the letter {choice.name!r}: give each its own"
            )
    return question


def distinct_texts(questions: Iterable[Question]) -> Iterator[list[Question]]:
    """Yield the questions in their order, in groups within which no two have the same text."""
    group: dict[str, Question] = {}
    for question in questions:
        if question.text in group:
            yield list(group.values())
            group = {}
        group[question.text] = question
    if group:
        yield list(group.values())


# Options of a multiple-choice question as people write them: a list, letter -> text, or one line of text.

EXPECTED = 'write "Rome; Paris" or "A=Rome; B=Paris", a list of texts, or an object of letters and texts'
LETTERED = re.compile(r"\s*([A-Z]|\d{1,2})\s*=\s*(\S.*)", re.DOTALL)


def choices_of(given: Any) -> tuple[Choice, ...]:
    """Return the options: texts get the letters A, B, C ... unless each brings its own; an object has them as keys.

    In one line of text, semicolons part the options; it may also hold a list or an object as JSON, as a cell of a
    table does. Nothing (None, "", an empty list) gives none. Raises UsageError for anything else.
    """
    if isinstance(given, str):
        text, given = given, [part for part in given.split(";") if part.strip()]
        if text.lstrip()[:1] in {"[", "{"}:
            with suppress(ValueError):  # a text that only begins like JSON
                given = parse(text)
    if isinstance(given, Mapping):
        return tuple(Choice(*_texts(str(letter), text)) for letter, text in given.items())
    if given is None:
        return ()
    if not isinstance(given, Sequence):
        raise UsageError(f"choices are {given!r}: {EXPECTED}")
    # Each has the letter that it brings, or, unless all bring one, the next of the alphabet.
    texts = [_texts("", text)[1] for text in given]
    matches = [LETTERED.fullmatch(text) for text in texts]
    if texts and all(matches):
        return tuple(Choice(match[1], match[2].strip()) for match in matches if match)
    if len(texts) > len(ascii_uppercase):
        raise UsageError(
            f"there are {len(texts)} choices without letters: give at most {len(ascii_uppercase)}"
        )
    return tuple(Choice(letter, text) for letter, text in zip(ascii_uppercase, texts, strict=False))


def _texts(letter: str, text: Any) -> tuple[str, str]:
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise UsageError(f"a choice is {text!r}, not a text: {EXPECTED}")
    return letter.strip(), str(text).strip()


@dataclass(frozen=True)
class Source:
    """A text that evidence was found in, and where it stands.

    section  the headings over it, such as "npm config > fetch-retries"; empty where there are none
    score    the retriever's own (BM25: 0 and up), comparable only within one search
    lines    where the text goes on in other lines of the file: (words of the text before that, number of the line)
    """

    text: str
    file: str = ""
    line: int = 0
    score: float = 0.0
    section: str = ""
    lines: tuple[tuple[int, int], ...] = ()

    def line_at(self, start: int) -> int:
        """Return the line of the file that holds the word which begins at `start` in the text."""
        before = len(self.text[:start].split())
        return next((line for words, line in reversed(self.lines) if words <= before), self.line)

    @property
    def in_context(self) -> str:
        """The text with its headings before it: what is indexed and read."""
        return f"{self.section}: {self.text}" if self.section else self.text


@dataclass(frozen=True)
class Passage:
    """One document that a card wrote for a question, and what each selector made of it.

    `relevance` is a cosine in [-1, 1]. `faithfulness` says how far the card's own corpus supports it, `factuality` how
    far evidence does that is independent of the card; both are in [0, 1], and None means unknown (not measured, or no
    evidence was found), which is neither 0 nor a pass. `evidence` is the text that decided: independent, where there
    is some. `kept` says whether the document reached the LLM: then its pruned form did, where there is one. `source`
    is where the text stands, if the card looked it up (its index wrote it); None where the card's model wrote it.
    """

    card: str
    text: str
    pruned: str | None = None
    relevance: float | None = None
    faithfulness: float | None = None
    factuality: float | None = None
    evidence: Source | None = None
    kept: bool = False
    source: Source | None = None

    @property
    def support(self) -> float | None:
        """By how much it is supported: its factuality; its faithfulness, where there is no other."""
        return self.faithfulness if self.factuality is None else self.factuality

    @property
    def knowledge(self) -> str:
        """What the LLM would read of this passage, with the headings that it stands under."""
        text = self.text if self.pruned is None else self.pruned
        return f"{self.source.section}: {text}" if self.source and self.source.section else text


@dataclass(frozen=True)
class Decision:
    """A gate's decision: a higher `score` means that the LLM more likely knows; `fired` = ask the cards."""

    name: str
    score: float
    fired: bool


@dataclass(frozen=True)
class Citation:
    """What a sentence of the answer rests on: `passage` is the number of a kept passage of the Answer, from 0.

    `support` is in [0, 1]. `passage` is None where no passage supports the sentence. `quote`: where the sentence is a
    few words, the one of the passage that they were taken from, as far as the LLM tells. `line`: where in the file the
    sentence of the passage begins that it rests on; 0 where that is not known.
    """

    sentence: str
    passage: int | None = None
    support: float = 0.0
    quote: str = ""
    line: int = 0


@dataclass(frozen=True)
class Usage:
    """The cost of one question. Tokens are the LLM's, None if its backend does not report them all.

    `llm_seconds` were spent waiting for the LLM, `card_seconds` generating (in a batch: the question's share).
    """

    tokens_in: int | None = None
    tokens_out: int | None = None
    llm_seconds: float = 0.0
    card_seconds: float = 0.0


@dataclass(frozen=True)
class Answer:
    """One answered question with its whole trace.

    `cards` are those that wrote at least one passage, `calls` counts requests to the LLM, `seconds` is
    wall time (in a batch: the batch's time divided by its questions). `notes` are sentences for the user,
    such as a reply that named no card. `confidence`: the probability in [0, 1] that the answer is right, where the LLM
    gives one. `nearest`: only where the LLM does not know: what of the passages comes nearest, and where it stands.
    `choice`, of a multiple-choice question: the letter of the chosen option, whose text is then the `answer`; "" where
    none was chosen, and `answer` is what the LLM said instead. `known`: whether the LLM says that it
    knows; `confidence` is that of the answer then, else that there is none.
    """

    question: str
    answer: str
    mode: str
    gate: Decision
    cards: tuple[str, ...] = ()
    passages: tuple[Passage, ...] = ()
    calls: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    citations: tuple[Citation, ...] = ()
    usage: Usage | None = None
    confidence: float | None = None
    nearest: Source | None = None
    choice: str | None = None
    known: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return the answer as JSON-ready data, as `kcard ask --json` prints it.

        `citations` and `notes` are there only if there are any, `usage` only if the tokens are known, `confidence` only
        if the LLM gives one, `known` and `nearest` only where it does not know, `choice` only of a multiple-choice
        question.
        """
        data: dict[str, Any] = {
            "question": self.question,
            "answer": self.answer,
            "mode": self.mode,
            "gate": {"name": self.gate.name, "score": self.gate.score, "fired": self.gate.fired},
            "cards": list(self.cards),
            "passages": [_passage_json(p) for p in self.passages],
            "calls": self.calls,
            "seconds": round(self.seconds, 4),
        }
        if self.choice is not None:
            data["choice"] = self.choice
        if not self.known:
            data["known"] = False
        if self.confidence is not None:
            data["confidence"] = round(self.confidence, 4)
        if self.nearest is not None:
            data["nearest"] = _source_json(self.nearest)
        if self.citations:
            data["citations"] = [
                {k: v for k, v in asdict(citation).items() if v or k not in ("quote", "line")}
                for citation in self.citations
            ]
        if self.usage is not None and self.usage.tokens_in is not None:
            data["usage"] = {
                key: round(value, 4) if isinstance(value, float) else value
                for key, value in asdict(self.usage).items()
            }
        return data | {"notes": list(self.notes)} if self.notes else data


def _passage_json(p: Passage) -> dict[str, Any]:
    data = {
        "card": p.card,
        "text": p.text,
        "pruned": p.pruned,
        "relevance": p.relevance,
        "faithfulness": p.faithfulness,
        "factuality": p.factuality,
        "evidence": _source_json(p.evidence),
        "kept": p.kept,
    }
    return data if p.source is None else data | {"source": _source_json(p.source)}


def _source_json(source: Source | None) -> dict[str, Any] | None:
    if source is None:
        return None
    data = {"text": source.text, "file": source.file, "line": source.line, "score": source.score}
    return data | {"section": source.section} if source.section else data
