"""Whether sentences that answer a question of yes or no say yes.

A logistic regression on words of negation and permission in the two, and on the question's words that the sentences
repeat. Given the right sentences of 1,103 questions about manuals it is sure of .82, and right about .75 of these
(cross-validated over manuals; docs/log.md). The reader's own output was at chance there.
"""

import math
import re

from kcard.llms.candidates import coverage

__all__ = ["DECIDED", "polarity"]

DECIDED = math.log(0.63 / 0.37)  # log-odds below which neither is said

# "any price or no price" and "whether or not" deny nothing.
NEGATION = re.compile(
    r"(?<!\bor )\b(?:not|never|no|cannot|nor|neither|none|nothing|nobody)\b|n['’]t\b", re.IGNORECASE
)
ONLY = re.compile(r"\bonly\b", re.IGNORECASE)
PERMISSION = re.compile(
    r"\b(?:can|may|possible|allows?|supports?|able|also|either|both|automatically|optional\w*|even|any|yes"
    r"|recommended|fine|ok|okay|welcome|free to|go ahead|permit\w*|legal|works?)\b",
    re.IGNORECASE,
)
ADVERB = re.compile(
    r"\b(?:ever|really|still|actually|already|just|simply|then)\b", re.IGNORECASE
)  # asks for nothing
LIMIT = re.compile(r"\b(?:without|only|instead)\b", re.IGNORECASE)

BIAS = 0.2
NEGATED, LIMITED, PERMITTED = -1.45, -1.27, 0.55  # log-odds of yes for such words in the sentences
REPEATED = 0.63  # for all of the question's words in sentences that deny nothing
ASKED_NEGATED, ASKED_LIMITED = 0.55, 1.41  # for such words in the question
BOTH_NEGATED = 0.73  # for negation in both


def polarity(question: str, sentences: str) -> float:
    """Log-odds that the answer is yes, if these sentences answer the question."""
    negated, asked = bool(NEGATION.search(sentences)), bool(NEGATION.search(question))
    return (
        BIAS
        + NEGATED * negated
        + LIMITED * bool(ONLY.search(sentences))
        + PERMITTED * bool(PERMISSION.search(sentences))
        + REPEATED * (0.0 if negated else coverage(ADVERB.sub("", question), sentences))
        + ASKED_NEGATED * asked
        + ASKED_LIMITED * bool(LIMIT.search(question))
        + BOTH_NEGATED * (negated and asked)
    )
