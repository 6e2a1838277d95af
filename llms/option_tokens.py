"""Which option an endpoint's reply chooses, by the probabilities of its first token where they are about letters."""

import math
import re
from collections.abc import Iterable, Sequence

from kcard.llms.named_option import named_option
from kcard.request import Choice

__all__ = ["chosen"]

MOST = 0.5  # of the probability, at and above which the first token is a letter, whatever the text says
LEAST = 0.05  # below which it is about something else


def chosen(
    tokens: Iterable[tuple[str, float]], text: str, choices: Sequence[Choice]
) -> tuple[str, float] | None:
    """The letter of the likeliest option and its share of the probability of all letters.

    None where the first token is more likely no letter, and the text names an option or the letters hold next to
    nothing: then the text decides. `tokens`: (token, log-probability) of the likeliest first tokens.
    """
    mass = dict.fromkeys((choice.name for choice in choices), 0.0)
    letters = {name.casefold(): name for name in mass}
    for token, log_probability in tokens:
        name = letters.get(re.sub(r"[\W_]+", "", token).casefold())
        if name is not None:
            mass[name] += math.exp(min(log_probability, 0.0))
    total = sum(mass.values())
    if total < LEAST or (total < MOST and named_option(text, choices) is not None):
        return None
    letter = max(mass, key=mass.__getitem__)
    return letter, mass[letter] / total
