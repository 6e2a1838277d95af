"""All passages in one prompt, the best first: how retrieved and GenRead's passages are read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kcard.answer import Passage
from kcard.protocols import LLM
from kcard.replies import replies
from kcard.request import Reply, Request

__all__ = ["Together"]


@dataclass(frozen=True)
class Together:
    """One request a question, "Knowledge: ... Question: ... Answer:"."""

    def replies(
        self, llm: LLM, requests: Sequence[Request], passages: Sequence[Sequence[Passage]]
    ) -> list[Reply]:
        rows = zip(requests, passages, strict=True)
        return replies(
            llm, [replace(request, knowledge=tuple(p.knowledge for p in read)) for request, read in rows]
        )
