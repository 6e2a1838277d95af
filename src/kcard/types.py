"""The values that questions, requests and answers are made of."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from kcard.trace import Trace, Usage

# Sampling of documents, and the only function that derives seeds.


@dataclass(frozen=True)
class Sampling:
    """Decoding settings of a card. `temperature` 0 is greedy; `tokens` is the longest document in tokens."""

    temperature: float = 1.0
    tokens: int = 100
    top_k: int = 50
    seed: int = 0

    def distinct(self, documents: int) -> int:
        """Return how many of a question's documents differ: at temperature 0, all are equal."""
        if self.temperature > 0:
            return documents
        return min(documents, 1)


def derive_seed(*parts: str | int) -> int:
    """Derive a 63-bit seed from `parts`, such as (seed, question, card, document number).

    It depends on nothing else, so a document does not change with its batch.
    """
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


# Requests to an LLM, as data: no backend ever parses a prompt that kcard itself wrote.

Kind = Literal["need", "what", "choose", "answer", "document", "knowledge", "recite", "rewrite"]


@dataclass(frozen=True)
class Choice:
    """Something to choose from: a card (name, description) or an option of a question (letter, text).

    `date`: ISO date up to which a card's knowledge is current; None if unknown.
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
    """An earlier request about the same question, and the LLM's reply (Knowledge Card, algorithm 2).

    reply      of `need`, Yes or No, where yes means that more is needed; empty if the LLM replied nothing
    template   see Request
    choices    the cards that `choose` offered
    documents  number of passages of Request.knowledge that this turn added
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
              a statement that does (generated knowledge prompting); recite: a passage from memory that contains the
              answer (RECITE); rewrite: the question of a conversation so that it stands alone, where `knowledge` are
              the lines of the conversation, the newest first (kcard.conversation.rewrite_request)
    headings  the heading with which each text of `knowledge` begins ("heading: text"), "" for a text without one;
              empty if no headings are known
    choices   of `choose`, the cards; of any other kind, the options (letter, text) of the question
    turns     the earlier turns, oldest first; empty in modes whose requests are independent (bottom-up)
    template  number of the wording of a `need` request, from 0 (see llms/prompts.py); in the examples, and in
              Reply.yes, yes means that more is needed, whatever it means in the wording
    draft     whether to reply with the first, most likely words of an `answer`, with token scores (Reply.tokens)
    sample    number of the reply among several to the same request, from 0; each is drawn with its own seed
    temperature  of sampling, at least 0; None: the backend's own
    grounded  whether an open question is asked in kcard's own wording, with numbered documents (llms/prompts.toml),
              instead of the papers'; then earlier turns are left out
    origin    the question that it was made for (Question.request), whose trace it is added to
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
    grounded: bool = False
    origin: "Question | None" = field(default=None, compare=False, repr=False)

    @property
    def shots(self) -> tuple[Example, ...]:
        """Return the examples of its kind; for an answer, those with options if it has options, else those without."""
        own = tuple(example for example in self.examples if example.kind == self.kind)
        if self.kind != "answer":
            return own
        return tuple(example for example in own if bool(example.choices) == bool(self.choices))


@dataclass(frozen=True)
class TokenScores:
    """Scores of one token of a reply: log-probability, at most 0; margin between the probabilities of the two most
    likely tokens, in [0, 1]; entropy of the next-token distribution, in nats, at least 0."""

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
    """An LLM's reply.

    yes         only for `need`: the probability in [0, 1] that more information is needed
    tokens_in, tokens_out  tokens of the request and of the reply; None if the backend does not report them
    tokens      of an answer or draft: the scores of its tokens; None if the backend gives none
    confidence  of an answer: the probability in [0, 1] that it is right; None if the backend gives none
    choice      of an answer to a multiple-choice question: the letter of the chosen option, "" if none was chosen;
                None if it must be parsed from the text
    shares      likewise: the probability of each option, in their order, of sum 1; None if the backend gives none
    known       False if the answer is that the LLM does not know
    quote       the knowledge that supports the answer or, if the LLM does not know, the nearest part of it
    remark      a sentence for the user about the reply
    """

    text: str
    yes: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens: tuple[TokenScores, ...] | None = None
    confidence: float | None = None
    choice: str | None = None
    shares: tuple[float, ...] | None = None
    known: bool = True
    quote: Quote | None = None
    remark: str = ""


@dataclass(frozen=True)
class Source:
    """A text of a corpus, and its place.

    section  the headings above it, such as "npm config > fetch-retries"; empty if there are none
    score    the retriever's score (BM25: at least 0), comparable only within one search
    lines    the starts of further lines of the file: (number of words of the text before the line, number of the line)
    """

    text: str
    file: str = ""
    line: int = 0
    score: float = 0.0
    section: str = ""
    lines: tuple[tuple[int, int], ...] = ()

    def line_at(self, start: int) -> int:
        """Return the number of the file's line with the word that begins at `start` in the text."""
        before = len(self.text[:start].split())
        for words, line in reversed(self.lines):
            if words <= before:
                return line
        return self.line

    @property
    def in_context(self) -> str:
        """Return the text after its headings, as it is indexed and read."""
        return f"{self.section}: {self.text}" if self.section else self.text


@dataclass(frozen=True)
class Passage:
    """A document that a card generated for a question, with the results of the selectors.

    pruned        the document after pruning; None if it was not pruned
    relevance     a cosine, in [-1, 1]
    faithfulness  support by the card's own corpus, in [0, 1]; None: unknown (not measured, or no evidence was found),
                  which is neither 0 nor a pass
    factuality    support by evidence that is independent of the card, likewise
    evidence      the text that decided the scores; independent evidence if there is some
    kept          whether the document, after pruning, reached the LLM
    source        place of a text that the card's index retrieved; None if its model generated the text
    reason        why it is not kept, in a few words
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
    reason: str = ""

    @property
    def support(self) -> float | None:
        """Return its factuality or, if that is unknown, its faithfulness."""
        if self.factuality is None:
            return self.faithfulness
        return self.factuality

    @property
    def knowledge(self) -> str:
        """Return the passage as the LLM reads it, after its headings."""
        text = self.text if self.pruned is None else self.pruned
        if self.source and self.source.section:
            return f"{self.source.section}: {text}"
        return text


@dataclass(frozen=True)
class Decision:
    """A gate's decision. `score`: how likely the LLM knows the answer; `fired`: whether cards are used."""

    name: str
    score: float
    fired: bool


@dataclass(frozen=True)
class Context:
    """What an integrator gathers for a question.

    passages  those that the LLM reads are marked as kept, and stand in the order in which it reads them
    notes     for the user
    turns     the transcript that led to the passages, in top-down and hybrid
    """

    passages: tuple[Passage, ...] = ()
    notes: tuple[str, ...] = ()
    turns: tuple[Turn, ...] = ()

    @property
    def knowledge(self) -> tuple[str, ...]:
        """Return the texts that the LLM reads: only those of cards, never the evidence."""
        return tuple(p.knowledge for p in self.passages if p.kept)

    @property
    def headings(self) -> tuple[str, ...]:
        """Return the heading that each of these texts starts with; empty for those without one."""
        sections = []
        for passage in self.passages:
            if passage.kept:
                sections.append(passage.source.section if passage.source else "")
        return tuple(sections)


@dataclass(frozen=True)
class Question:
    """A question to a pipeline or baseline; a plain text is a question without options and demonstrations.

    choices     the options (letter, text) of a multiple-choice question; empty for an open question
    examples    demonstrations for this question, the nearest one last, instead of the built-in ones; those that do not
                fit into the LLM's window are dropped from the front
    relation    what it asks about its subject, such as "director", for gates; None: unknown
    popularity  of its subject, such as monthly page views, for gates; None: unknown
    trace       of this very object; equal questions have traces of their own
    """

    text: str
    choices: tuple[Choice, ...] = ()
    examples: tuple[Example, ...] = ()
    relation: str | None = field(default=None, compare=False, repr=False)
    popularity: float | None = field(default=None, compare=False, repr=False)
    trace: Trace = field(default_factory=Trace, compare=False, repr=False)

    def request(
        self,
        kind: Kind,
        knowledge: Sequence[str] = (),
        examples: Sequence[Example] = (),
        choices: tuple[Choice, ...] = (),
        **fields: Any,
    ) -> Request:
        """Return a request about this question, with its options and its demonstrations.

        examples  of which those of a kind that the question demonstrates itself are left out
        choices   of a `choose` request, the cards
        fields    further fields of Request
        """
        own = {example.kind for example in self.examples}
        others = tuple(example for example in examples if example.kind not in own)
        if kind in {"need", "what", "answer"}:
            choices = self.choices
        return Request(
            kind, self.text, tuple(knowledge), others + self.examples, choices, origin=self, **fields
        )

    def answer_text(self, reply: Reply) -> str:
        """Return what a reply answers: the text of the option that it chose, else its own."""
        for choice in self.choices:
            if choice.name == reply.choice:
                return choice.description.strip()
        return reply.text.strip()


# The answer.


CitationVerdict = Literal["supported", "contradicted", "not in the cards"]


@dataclass(frozen=True)
class Citation:
    """What the passages say about a sentence of the answer.

    passage  number of the kept passage of the Answer, from 0, that supports or contradicts it; None if none does
    support  the probability that the passages support it, in [0, 1]
    quote    the sentence of the passage that does, if it was found
    line     line of the file where that sentence begins; 0 if unknown
    is_contradicted  whether the passage contradicts it
    """

    sentence: str
    passage: int | None = None
    support: float = 0.0
    quote: str = ""
    line: int = 0
    is_contradicted: bool = False

    @property
    def verdict(self) -> CitationVerdict:
        if self.passage is None:
            return "not in the cards"
        return "contradicted" if self.is_contradicted else "supported"

    def to_json(self) -> dict[str, Any]:
        """Return the citation as JSON-ready data, with its verdict; `quote` and `line` only if they are known."""
        data = {
            "sentence": self.sentence,
            "passage": self.passage,
            "support": self.support,
            "verdict": self.verdict,
        }
        if self.quote:
            data["quote"] = self.quote
        if self.line:
            data["line"] = self.line
        return data


@dataclass(frozen=True)
class Answer:
    """One answered question with its whole trace.

    cards       those that generated at least one passage
    calls       number of requests to the LLM
    seconds     wall time; in a batch, its time divided by the number of questions
    notes       sentences for the user, such as that a reply named no card
    confidence  the probability in [0, 1] that the answer is right or, if it is not known, that the passages have none;
                None if it is unknown
    nearest     if the LLM does not know: the nearest part of the passages, and its place
    choice      of a multiple-choice question: the letter of the chosen option, whose text is the `answer`; "" if none
                was chosen, in which case `answer` is the LLM's reply
    known       whether the answer is one: the LLM says that it knows it, and the cards don't speak against it
    is_calibrated  whether the confidence was fitted on answers of this LLM's family; otherwise on those of others
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
    is_calibrated: bool = True

    def __str__(self) -> str:
        """Return the answer and, numbered, the quotations that support it, with card, file, line and known scores."""
        from kcard.display import plain_text

        return plain_text(self)

    def _repr_html_(self) -> str:
        """Return the answer as notebooks show it."""
        from kcard.display import answer_html

        return answer_html(self)

    def to_json(self) -> dict[str, Any]:
        """Return the answer as JSON-ready data, as `kcard ask --json` prints it.

        It has `citations` and `notes` only if there are any, `usage` only if the tokens are known, `confidence` only if
        it is known, `is_calibrated` only if it is not, `known` and `nearest` only if the LLM does not know, `choice`
        only for a multiple-choice question.
        """
        data: dict[str, Any] = {
            "question": self.question,
            "answer": self.answer,
            "mode": self.mode,
            "gate": asdict(self.gate),
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
        if not self.is_calibrated:
            data["is_calibrated"] = False
        if self.nearest is not None:
            data["nearest"] = _source_json(self.nearest)
        if self.citations:
            data["citations"] = [citation.to_json() for citation in self.citations]
        if self.usage is not None and self.usage.tokens_in is not None:
            usage = self.usage
            times = (round(usage.llm_seconds, 4), round(usage.card_seconds, 4))
            data["usage"] = asdict(replace(usage, llm_seconds=times[0], card_seconds=times[1]))
        if self.notes:
            data["notes"] = list(self.notes)
        return data


def _passage_json(p: Passage) -> dict[str, Any]:
    data = vars(p) | {"evidence": _source_json(p.evidence), "source": _source_json(p.source)}
    if p.source is None:
        del data["source"]
    if not p.reason:
        del data["reason"]
    return data


def _source_json(source: Source | None) -> dict[str, Any] | None:
    if source is None:
        return None
    data = {"text": source.text, "file": source.file, "line": source.line, "score": source.score}
    if source.section:
        data["section"] = source.section
    return data
