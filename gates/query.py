"""A question as gates see it, with what is known beside its text."""

from dataclasses import dataclass

__all__ = ["Query"]


@dataclass(frozen=True)
class Query:
    """A question to be scored.

    relation    what it asks about its subject, such as "director"; None: not known
    popularity  how well known its subject is, such as page views a month, at least 0; None: not known
    answer      what the LLM answers without cards; None: not known
    draft       what it writes before and with that answer, reasoning included; None: not known
    draft_log_probability  mean over the tokens of either, 0 or less; None: not known
    """

    question: str
    relation: str | None = None
    popularity: float | None = None
    answer: str | None = None
    draft: str | None = None
    draft_log_probability: float | None = None
