"""What an LLM is asked, as data: no backend ever parses a prompt that kcard itself wrote."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Choice", "Example", "Kind", "Quote", "Reply", "Request", "TokenScores", "Turn"]

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
              (kcard.training.study.tasks)
    headings  what stands over each of `knowledge`, which begins with it ("heading: text"), "" where nothing does;
              empty: of none it is known
    choices   of `choose`, the cards; of any other kind, the options (letter, text) of the question
    turns     what went before, oldest first; empty: nothing, or a mode whose requests stand alone (bottom-up)
    template  which wording of a `need` request to use, from 0 (see llms/wordings.py); in the examples, and in
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
    """One token of a reply: its log-probability, 0 or less; how much likelier the likeliest token was than the
    second, in [0, 1]; the entropy over the tokens at its place, in nats, 0 or more."""

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
