"""The values that one question leaves behind: what was written, judged, decided and answered."""

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Answer", "Citation", "Decision", "Passage", "Source", "Usage"]


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
    """What the gate said: `score` is higher the surer it is that the LLM knows; `fired` = ask the cards."""

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
    """What one question cost. Tokens are the LLM's, None where its backend does not tell them all.

    `llm_seconds` were spent waiting for the LLM, `card_seconds` while cards wrote (in a batch: the question's share).
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
        """The answer as JSON-ready data, as `kcard ask --json` prints it.

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
            data["citations"] = [_citation_json(citation) for citation in self.citations]
        if self.usage is not None and self.usage.tokens_in is not None:
            data["usage"] = {key: _rounded(value) for key, value in asdict(self.usage).items()}
        return data | {"notes": list(self.notes)} if self.notes else data


def _rounded(value: float | None) -> float | None:
    return round(value, 4) if isinstance(value, float) else value


def _citation_json(citation: Citation) -> dict[str, Any]:
    data = asdict(citation)
    return {key: value for key, value in data.items() if value or key not in ("quote", "line")}


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
