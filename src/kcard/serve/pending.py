"""A question whose passages are ready, for an LLM that is asked elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass

from kcard.answer import Answer
from kcard.integrators.pipeline import Pipeline, Prepared
from kcard.request import Reply

__all__ = ["Pending"]


@dataclass(frozen=True)
class Pending:
    """It ends with `complete` or `abandon`, in the thread that prepared it."""

    pipeline: Pipeline
    question: str
    prepared: Prepared

    @property
    def knowledge(self) -> Sequence[str]:
        return self.prepared.gathered.knowledge

    def complete(self, reply: Reply, seconds: float) -> Answer:
        """The answer whose reply the LLM gave in so many seconds."""
        return self.pipeline.complete(self.question, self.prepared, reply, seconds)

    def abandon(self) -> None:
        self.pipeline.abandon(self.question)
