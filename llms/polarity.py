"""Whether sentences that answer a question of yes or no say yes.

A logistic regression on words of negation, contrast and permission in the two. Given the right sentences it agrees with
.71 of 867 answers about manuals, with .76 where it is sure (docs/log.md). The reader's own output was at chance there.
"""

import math
import re

__all__ = ["DECIDED", "polarity"]

DECIDED = math.log(0.6 / 0.4)  # log-odds below which neither is said

# "any price or no price" and "whether or not" deny nothing.
NEGATION = re.compile(
    r"(?<!\bor )\b(?:not|never|no|cannot|nor|neither|none|nothing|nobody)\b|n['’]t\b", re.IGNORECASE
)
CONTRAST = re.compile(
    r"\b(?:without|instead|rather|only|unless|except|but|however|although|though)\b", re.IGNORECASE
)
PERMISSION = re.compile(
    r"\b(?:can|may|possible|allows?|supports?|able|also|either|both|automatically|optional\w*|even|any|yes"
    r"|recommended)\b",
    re.IGNORECASE,
)
LIMIT = re.compile(r"\b(?:without|only|instead)\b", re.IGNORECASE)

BIAS = 0.28
NEGATED, CONTRASTED, PERMITTED = -1.48, -0.65, 0.48  # log-odds of yes for such words in the sentences
ASKED_NEGATED, ASKED_LIMITED = 1.13, 1.39  # for such words in the question
BOTH_NEGATED = 0.49  # for negation in both


def polarity(question: str, sentences: str) -> float:
    """Log-odds that the answer is yes, if these sentences answer the question."""
    negated, asked = bool(NEGATION.search(sentences)), bool(NEGATION.search(question))
    return (
        BIAS
        + NEGATED * negated
        + CONTRASTED * bool(CONTRAST.search(sentences))
        + PERMITTED * bool(PERMISSION.search(sentences))
        + ASKED_NEGATED * asked
        + ASKED_LIMITED * bool(LIMIT.search(question))
        + BOTH_NEGATED * (negated and asked)
    )
