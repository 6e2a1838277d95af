"""LLM cards: an LLM writes its own document for the question (GenRead; Adaptive Retrieval, section 4).

The manifest's base names the LLM: embedded, openai:MODEL, hf:MODEL, or self for the one that answers. Which of them
may be used is not decided here: the loader has an LLM for the card, or raises.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcard.answer import Passage
from kcard.cards.format.folder import Card
from kcard.errors import CardError
from kcard.manifest import Manifest
from kcard.protocols import LLM
from kcard.request import Request
from kcard.sampling import Sampling

if TYPE_CHECKING:
    from kcard.cards.lm.loader import Loader

__all__ = ["LLMCard", "load", "readme"]

PAGE = """\
---
library_name: kcard
pipeline_tag: text-generation
license: {licence}
language: [{language}]
tags: [kcard, knowledge-card, llm]
---

# {name}

{description}

A knowledge card without weights: {llm} writes a document of its own for each question (GenRead, Yu et al., 2023),
which is read and checked like that of any other card. It can be wrong in the ways in which the LLM is wrong.

A question is sent to a remote LLM only where that is the one that the user chose to answer, or one of its server.
"""


def readme(manifest: Manifest) -> str:
    """The card's README.md."""
    llm = manifest.base.name
    return PAGE.format(
        name=manifest.name,
        description=manifest.description,
        licence=manifest.licence,
        language=manifest.language,
        llm="the LLM that answers" if llm == "self" else f"the LLM `{llm}`",
    )


def load(card: Card, models: "Loader") -> "LLMCard":
    """The generator of an LLM card. Raises CardError where the loader has no LLM, and what its LLM raises."""
    if models.llm is None:
        raise CardError(f"card {card.name!r} is written by an LLM, so it can only be asked (kcard ask)")
    return LLMCard(card.name, models.llm(card.manifest.base.name))


class LLMCard:
    """Writes one document a question; further ones are empty, since each would be another call for much the same."""

    def __init__(self, name: str, llm: LLM) -> None:
        self._name, self._llm = name, llm

    def write(self, questions: Sequence[str], documents: int, sampling: Sampling) -> list[list[Passage]]:
        """See CardGenerator; the LLM has its own temperature and length. Raises LLMError."""
        del sampling
        empty = [Passage(self._name, "")] * (documents - 1)
        texts = [self._llm.reply(Request("document", question)).text.strip() for question in questions]
        return [[Passage(self._name, text), *empty][:documents] for text in texts]
