"""Any function from a prompt to a reply as the LLM: a few lines of one's own around whatever answers."""

from collections.abc import Callable

from kcard.errors import LLMError
from kcard.llms.prompts import render
from kcard.llms.wordings import NEED
from kcard.llms.yes_no import from_text
from kcard.request import Reply, Request

__all__ = ["FunctionLLM"]


class FunctionLLM:
    """`complete` takes a prompt, examples included, and returns the text that continues it."""

    def __init__(self, complete: Callable[[str], str]) -> None:
        self._complete = complete
        self.announcement = f"LLM: the function {getattr(complete, '__name__', repr(complete))}"

    def reply(self, request: Request) -> Reply:
        """Raises LLMError where the function does not return a text; what it raises goes through."""
        text = self._complete(render(request))
        if not isinstance(text, str):
            raise LLMError(
                f"the LLM function returned {type(text).__name__}, not a string: return the reply as a string"
            )
        if request.kind != "need":
            return Reply(text)
        yes = from_text(text)
        return Reply(text, yes if yes is None or NEED[request.template].yes_needs else 1 - yes)
