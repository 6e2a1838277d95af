"""A question with what belongs to it alone: the options to choose from, and demonstrations."""

from dataclasses import dataclass

from kcard.request import Choice, Example

__all__ = ["Question"]


@dataclass(frozen=True)
class Question:
    """What a pipeline or a baseline answers; a bare text is a question without options and demonstrations.

    choices   the options (letter, text) of a multiple-choice question, whose answer is one of the letters; empty for
              an open question
    examples  demonstrations for this question, the nearest one last, in place of the built-in ones; of those that do
              not fit into the LLM's window the first are dropped first
    """

    text: str
    choices: tuple[Choice, ...] = ()
    examples: tuple[Example, ...] = ()
