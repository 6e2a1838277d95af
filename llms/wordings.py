"""The ways to ask an LLM whether it needs more information: three of Knowledge Card, then five of SKR."""

from dataclasses import dataclass

from kcard.llms.yes_no import from_text

__all__ = ["NEED", "Wording"]


@dataclass(frozen=True)
class Wording:
    """One way to ask. `replies`: how a demonstration says that it needs more, and that it doesn't; None: as given."""

    ask: str
    yes_needs: bool = True
    replies: tuple[str, str] | None = None

    def needed(self, yes: float | None) -> float | None:
        """The probability that more is needed, from that of a yes: the same, or what is left of 1."""
        return yes if yes is None or self.yes_needs else 1 - yes

    def demonstrated(self, reply: str) -> str:
        """The reply of an example, whose yes means that more is needed, as a reply to this wording."""
        needs = from_text(reply)
        if self.replies is None or needs is None:
            return reply
        return self.replies[0] if needs else self.replies[1]


NEED = (
    # Knowledge Card, section 2.3 and appendix
    Wording("Do you need more information? (Yes or No)"),
    Wording("Is more information needed here? (Yes or No)"),
    Wording("Would you like additional information? (Yes or No)"),
    # SKR, section 3.2 and table 2; the question stands on a line of its own before them
    Wording(
        "Q: Do you need additional information to answer this question? A:",
        replies=(
            "Yes, I need additional information to answer this question.",
            "No, I don't need additional information to answer this question.",
        ),
    ),
    Wording(
        "Q: Would you like any extra prompts to help you? A:",
        replies=("Yes, please.", "No, I do not need any extra prompts."),
    ),
    Wording(
        "Q: Would you like any additional clues? A:",
        replies=("Yes, please.", "No, I do not need any additional clues."),
    ),
    Wording(
        "Q: Can you answer this question based on what you know? A:",
        yes_needs=False,
        replies=(
            "No, I cannot answer it based on what I know.",
            "Yes, I can answer it based on what I know.",
        ),
    ),
    Wording(
        "Q: Can you solve this question now? A:",
        yes_needs=False,
        replies=("No, I cannot solve it now.", "Yes, I can solve it now."),
    ),
)
