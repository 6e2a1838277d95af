"""Self-ask gates: the LLM says itself whether it needs more information, with or without demonstrations."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from kcard.errors import UsageError
from kcard.gates.base import GateState, Resources, parse_settings
from kcard.gates.records import Query, Record
from kcard.gates.skr import split_records
from kcard.interfaces import LLM, Array, replies
from kcard.io import build
from kcard.types import Example, Request, Turn

__all__ = [
    "KNOWLEDGE_CARD",
    "KNOWLEDGE_CARD_SELF_ASK",
    "SKR",
    "SKR_ICL",
    "SKR_PROMPT",
    "FittedSelfAsk",
    "SelfAsk",
    "SelfAskEnsemble",
    "SelfAskKind",
    "SelfAskSKR",
    "SelfAskSKREnsemble",
    "SelfAskSettings",
    "asked",
    "needs",
]


KNOWLEDGE_CARD = (0, 1, 2)  # Request.template of each paper's wordings
SKR = (3, 4, 5, 6, 7)


@dataclass(frozen=True)
class SelfAsk:
    """One `need` request a question and wording; by default in Knowledge Card's first. The score is that of `asked`."""

    llm: LLM
    examples: Sequence[Example] = ()
    wordings: Sequence[int] = KNOWLEDGE_CARD[:1]

    @property
    def templates(self) -> int:
        """In how many of Knowledge Card's wordings top-down asks between its rounds."""
        return len(KNOWLEDGE_CARD) if self.wordings == KNOWLEDGE_CARD else 1

    def turn(self, fired: bool) -> Turn:
        """What was asked, in the first of its wordings, and the verdict."""
        return Turn("need", "Yes" if fired else "No", self.wordings[0])

    def knows(self, questions: Sequence[str]) -> Array:
        return asked(self.llm, questions, tuple(self.examples), self.wordings)


SelfAskEnsemble = partial(SelfAsk, wordings=KNOWLEDGE_CARD)  # each of its three wordings has a vote
SelfAskSKR = partial(SelfAsk, wordings=SKR[:1])  # with examples, SKR's in-context learning
SelfAskSKREnsemble = partial(SelfAsk, wordings=SKR)


def asked(
    llm: LLM, questions: Sequence[str], examples: tuple[Example, ...], wordings: Sequence[int]
) -> Array:
    """How sure the LLM says it is to know, shape (n,), in [0, 1]; several wordings decide by majority."""
    requests = [Request("need", question, (), examples) for question in questions]
    return np.array([1 - found for found in needs(llm, requests, wordings)], dtype=np.float32)


def needs(llm: LLM, requests: Sequence[Request], wordings: Sequence[int] = KNOWLEDGE_CARD[:1]) -> list[float]:
    """How far the LLM needs more information for each request, in [0, 1]; above 0.5 it does.

    With one wording that is P(yes), yes being the reply that asks for more. With more of them (use an odd number) it
    is the share of those whose P(yes) is above 0.5, so that the majority decides. A reply that says neither yes nor no
    counts as a need.
    """
    ballots = [replies(llm, [replace(request, template=w) for request in requests]) for w in wordings]
    votes_for_need = [
        [1.0 if reply.yes is None else reply.yes for reply in votes] for votes in zip(*ballots, strict=True)
    ]
    return [v[0] if len(v) == 1 else sum(yes > 0.5 for yes in v) / len(v) for v in votes_for_need]


# Self-ask as kinds that can be compared with the fitted ones, and with demonstrations from the user's own records.
#
# self-ask is Knowledge Card's (section 2.3), skr-prompt and skr-icl are SKR's direct prompting and in-context learning
# (section 3.2): one kind with three sets of defaults.

Wording = Literal["skr", "knowledge-card"]
WORDINGS: Mapping[Wording, Sequence[int]] = {"skr": SKR, "knowledge-card": KNOWLEDGE_CARD}


@dataclass(frozen=True)
class SelfAskSettings:
    """How the LLM is asked.

    wording         whose: SKR's, or Knowledge Card's
    ensemble        whether in all of them, the majority deciding, or in the first
    demonstrations  records shown, in turn of D+ and of D-; 0: none
    seed            draws them
    """

    wording: Wording
    ensemble: bool = False
    demonstrations: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.demonstrations < 0:
            raise ValueError(
                f"demonstrations is {self.demonstrations}, expected a whole number of at least 0"
            )


@dataclass(frozen=True, eq=False)
class FittedSelfAsk:
    """The score is 1 - P(more is needed), or the share of wordings that say it is not; the threshold is 0.5."""

    kind: str
    options: SelfAskSettings
    examples: tuple[Example, ...]
    llm: LLM | None
    threshold: ClassVar[float] = 0.5

    @property
    def settings(self) -> Mapping[str, Any]:
        return asdict(self.options)

    def scores(self, queries: Sequence[Query]) -> Array:
        """Raises UsageError where the gate was made without an LLM."""
        if self.llm is None:
            raise UsageError(f"gate {self.kind} needs an LLM, and none is given: choose one with --llm")
        wordings = WORDINGS[self.options.wording][: None if self.options.ensemble else 1]
        return asked(self.llm, [query.question for query in queries], self.examples, wordings)

    def state(self) -> GateState:
        return GateState({}, {"examples": [asdict(example) for example in self.examples]})


@dataclass(frozen=True)
class SelfAskKind:
    """See kcard.gates.base.Kind. `defaults`: the settings where none are given."""

    name: str
    defaults: SelfAskSettings

    def fit(
        self, records: Sequence[Record], settings: Mapping[str, Any], resources: Resources
    ) -> FittedSelfAsk:
        """Draw the demonstrations. Raises UsageError where they are wanted and D+ or D- is empty."""
        options = parse_settings(SelfAskSettings, {**asdict(self.defaults), **settings}, self.name)
        examples = _drawn(records, options, self.name) if options.demonstrations else ()
        return FittedSelfAsk(self.name, options, examples, resources.llm)

    def restore(
        self, settings: Mapping[str, Any], threshold: float, state: GateState, resources: Resources
    ) -> FittedSelfAsk:
        if threshold != FittedSelfAsk.threshold:
            raise ValueError("its threshold is invalid")
        examples = tuple(build(Example, example) for example in state.values["examples"])
        return FittedSelfAsk(
            self.name, parse_settings(SelfAskSettings, settings, self.name), examples, resources.llm
        )


KNOWLEDGE_CARD_SELF_ASK = SelfAskKind("self-ask", SelfAskSettings("knowledge-card"))
SKR_PROMPT = SelfAskKind("skr-prompt", SelfAskSettings("skr"))
SKR_ICL = SelfAskKind("skr-icl", SelfAskSettings("skr", demonstrations=4))


def _drawn(records: Sequence[Record], options: SelfAskSettings, kind: str) -> tuple[Example, ...]:
    """So many records of D+ and D- in turn, D+ first; fewer where there are not so many."""
    usable, is_known = split_records(records, kind)
    order = np.random.default_rng(options.seed).permutation(len(usable))
    knows = [usable[i] for i in order if is_known[i]]
    seeks = [usable[i] for i in order if not is_known[i]]
    shown = [
        Example("need", record.question, reply)
        for pair in zip(knows, seeks, strict=False)
        for record, reply in zip(pair, ("No", "Yes"), strict=True)
    ]
    return tuple(shown[: options.demonstrations])
