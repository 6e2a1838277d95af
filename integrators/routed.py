"""A gate between two ways of answering, such as retrieval for what few ask about and GenRead for the rest.

Of Adaptive Retrieval's combinations this was the best (section 5: GenRead above the popularity threshold, retrieval
below).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kcard.answer import Answer, Usage
from kcard.gates.decision import decide
from kcard.integrators.metered import Metered, QuestionCosts
from kcard.integrators.named_gate import NamedGate
from kcard.protocols import Answerer
from kcard.question import Question, checked

__all__ = ["Routed"]


@dataclass(frozen=True)
class Routed:
    """An Answerer that lets another one answer each question.

    gate   decides; `llm` is what it asks, whose costs are added to those of the answer
    below  answers where the gate seeks knowledge: its score is below the threshold
    above  answers elsewhere
    """

    gate: NamedGate
    llm: Metered
    below: Answerer
    above: Answerer

    def answers(self, questions: Sequence[str | Question]) -> Iterator[Answer]:
        """See Answerer. `Answer.gate` is this gate's decision, `mode` says which way answered."""
        asked = [checked(question) for question in questions]
        for question in asked:
            self.llm.open(question)
        texts = [question.text for question in asked]
        decisions = decide(self.gate.gate, self.gate.name, texts, self.gate.threshold)
        costs = {text: self.llm.close(text) for text in dict.fromkeys(texts)}
        ways = {
            fired: way.answers([q for q, d in zip(asked, decisions, strict=True) if d.fired == fired])
            for fired, way in ((True, self.below), (False, self.above))
        }
        for text, decision in zip(texts, decisions, strict=True):
            answer = _with_costs(next(ways[decision.fired]), costs.pop(text, QuestionCosts()))
            yield replace(answer, gate=decision)


def _with_costs(answer: Answer, costs: QuestionCosts) -> Answer:
    """The answer with what the gate cost besides."""
    usage = answer.usage
    if usage is not None:
        usage = Usage(
            _sum(usage.tokens_in, costs.tokens_in),
            _sum(usage.tokens_out, costs.tokens_out),
            usage.llm_seconds + costs.seconds,
            usage.card_seconds,
        )
    return replace(
        answer,
        calls=answer.calls + costs.calls,
        seconds=answer.seconds + costs.seconds,
        notes=costs.notes + answer.notes,
        usage=usage,
    )


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
