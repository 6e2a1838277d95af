"""Several requests to an LLM at once: concurrently or in one batch where the LLM can, otherwise in turn."""

from collections.abc import Sequence

from kcard.errors import LLMError, QuestionsFailed
from kcard.protocols import LLM, Batching
from kcard.request import Reply, Request

__all__ = ["replies"]


def replies(llm: LLM, requests: Sequence[Request]) -> list[Reply]:
    """One reply a request, in order.

    Raises QuestionsFailed where some failed, but only after the others have been asked, if the LLM is Batching.
    """
    if not isinstance(llm, Batching):
        return [llm.reply(request) for request in requests]
    found: list[Reply] = []
    failures: dict[str, LLMError] = {}
    for request, reply in zip(requests, llm.reply_all(requests), strict=True):
        if isinstance(reply, LLMError):
            failures.setdefault(request.question, reply)
        else:
            found.append(reply)
    if failures:
        raise QuestionsFailed(failures)
    return found
