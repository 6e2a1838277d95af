"""Self-ask gates: the LLM itself says whether it needs more information, with or without demonstrations."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import ClassVar, Literal, Self

import numpy as np

from kcard.errors import UsageError
from kcard.gates.base import FittedGate, GateState, Resources, Settings, parse_settings
from kcard.gates.records import Query, Record, split_records
from kcard.interfaces import LLM, Array, Gate, replies
from kcard.io import build
from kcard.types import Example, Question, Request, Turn

KNOWLEDGE_CARD = (0, 1, 2)  # Request.template of each paper's wordings
SKR = (3, 4, 5, 6, 7)
SKR_INLINE = (8, 9, 10, 11, 12)


@dataclass(frozen=True)
class SelfAsk(Gate):
    """Sends one `need` request per question and wording, by default Knowledge Card's first (`score_knowledge`)."""

    llm: LLM
    examples: Sequence[Example] = ()
    wordings: Sequence[int] = KNOWLEDGE_CARD[:1]

    @property
    def templates(self) -> int:
        """Return the number of Knowledge Card's wordings that top-down asks between its rounds."""
        if self.wordings == KNOWLEDGE_CARD:
            return len(KNOWLEDGE_CARD)
        return 1

    def turn(self, fired: bool) -> Turn:
        """Return the request, in the first wording, and the verdict as a turn of the transcript."""
        return Turn("need", "Yes" if fired else "No", self.wordings[0])

    def knows(self, questions: Sequence[Question]) -> Array:
        return score_knowledge(self.llm, questions, tuple(self.examples), self.wordings)


SelfAskEnsemble = partial(SelfAsk, wordings=KNOWLEDGE_CARD)  # each of its three wordings has a vote
SelfAskSKR = partial(SelfAsk, wordings=SKR[:1])  # with examples, SKR's in-context learning
SelfAskSKREnsemble = partial(SelfAsk, wordings=SKR)


def score_knowledge(
    llm: LLM, questions: Sequence[Question], examples: tuple[Example, ...], wordings: Sequence[int]
) -> Array:
    """Ask the LLM and return how sure it is to know each answer, shape (n,), in [0, 1]; with several wordings, by
    majority."""
    requests = [question.request("need", examples=examples) for question in questions]
    return (1 - np.array(needs(llm, requests, wordings), dtype=np.float64)).astype(np.float32)


def needs(llm: LLM, requests: Sequence[Request], wordings: Sequence[int] = KNOWLEDGE_CARD[:1]) -> list[float]:
    """Return the LLM's need of more information for each request, in [0, 1]; above 0.5 it needs more.

    With one wording this is P(yes), where yes asks for more. With several (use an odd number) it is the share of
    wordings whose P(yes) is above 0.5, so that the majority decides. A reply that is neither yes nor no counts as a
    need.
    """
    ballots = []
    for wording in wordings:
        worded = [replace(request, template=wording) for request in requests]
        ballot = []
        for reply in replies(llm, worded):
            ballot.append(1.0 if reply.yes is None else reply.yes)
        ballots.append(ballot)
    if len(ballots) == 1:
        return ballots[0]
    shares: list[float] = (np.array(ballots) > 0.5).mean(axis=0).tolist()
    return shares


Wording = Literal["skr", "skr-inline", "knowledge-card"]
WORDINGS: Mapping[Wording, Sequence[int]] = {
    "skr": SKR,
    "skr-inline": SKR_INLINE,
    "knowledge-card": KNOWLEDGE_CARD,
}


@dataclass(frozen=True)
class SelfAskSettings:
    """How to ask the LLM.

    wording         Knowledge Card's or SKR's; skr-inline has the question on the same line, as the paper prints it
    ensemble        whether to use all wordings and decide by majority, or the first alone
    demonstrations  the number of records shown, alternating between D+ and D-; 0: none
    seed            for drawing them
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
class FittedSelfAsk(FittedGate):
    """Self-ask as a kind that can be compared with other fitted gates and shows demonstrations from the user's records.

    self-ask is Knowledge Card's (section 2.3), skr-prompt and skr-icl are SKR's direct prompting and in-context
    learning (section 3.2): one gate with three sets of defaults. The score is 1 - P(more is needed), or the share of
    wordings that need no more; the threshold is 0.5.
    """

    options: SelfAskSettings
    examples: tuple[Example, ...]
    llm: LLM | None
    threshold: float = 0.5
    defaults: ClassVar[SelfAskSettings]

    @classmethod
    def fit(cls, records: Sequence[Record], settings: Settings, resources: Resources) -> Self:
        """Draw the demonstrations. Raises UsageError if there should be some and D+ or D- is empty."""
        options = parse_settings(SelfAskSettings, {**asdict(cls.defaults), **settings}, cls.kind)
        shown: list[Example] = []
        if options.demonstrations:
            # Draw demonstrations from D+ and D- in turn, D+ first; fewer if there are not enough.
            usable, is_known = split_records(records, cls.kind)
            order = np.random.default_rng(options.seed).permutation(len(usable))
            known = order[is_known[order]]
            unknown = order[~is_known[order]]
            for knows, seeks in zip(known, unknown, strict=False):
                shown.append(Example("need", usable[knows].question, "No"))
                shown.append(Example("need", usable[seeks].question, "Yes"))
        return cls(options, tuple(shown[: options.demonstrations]), resources.llm)

    @classmethod
    def restore(cls, settings: Settings, threshold: float, state: GateState, resources: Resources) -> Self:
        if threshold != cls.threshold:
            raise ValueError("its threshold is invalid")
        examples = tuple(build(Example, example) for example in state.values["examples"])
        return cls(parse_settings(SelfAskSettings, settings, cls.kind), examples, resources.llm)

    def scores(self, queries: Sequence[Query]) -> Array:
        """See FittedGate. Raises UsageError if the gate has no LLM."""
        if self.llm is None:
            raise UsageError(f"gate {self.kind} needs an LLM, and none is given: choose one with --llm")
        wordings = WORDINGS[self.options.wording]
        if not self.options.ensemble:
            wordings = wordings[:1]
        return score_knowledge(self.llm, [query.to_ask for query in queries], self.examples, wordings)

    def state(self) -> GateState:
        return GateState({}, {"examples": [asdict(example) for example in self.examples]})


class KNOWLEDGE_CARD_SELF_ASK(FittedSelfAsk):  # noqa: N801 - registered under this name
    kind, defaults = "self-ask", SelfAskSettings("knowledge-card")


class SKR_PROMPT(FittedSelfAsk):  # noqa: N801
    kind, defaults = "skr-prompt", SelfAskSettings("skr")


class SKR_ICL(FittedSelfAsk):  # noqa: N801
    kind, defaults = "skr-icl", SelfAskSettings("skr", demonstrations=4)
