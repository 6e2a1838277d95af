"""All passages in one prompt, the best first: how retrieved and GenRead's passages are read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kcard.answer import Passage
from kcard.protocols import LLM
from kcard.request import Reply, Request

__all__ = ["Together"]


@dataclass(frozen=True)
class Together:
    """One request, "Knowledge: ... Question: ... Answer:"."""

    def reply(self, llm: LLM, request: Request, passages: Sequence[Passage]) -> Reply:
        return llm.reply(replace(request, knowledge=tuple(p.knowledge for p in passages)))
