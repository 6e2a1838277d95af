"""Whether words can answer a question of a form at all: a year is no answer to who, a name none to how many."""

import re

from kcard.question_form import Form

__all__ = ["fits"]

WORD = re.compile(r"[^\W\d_]+")
DIGIT = re.compile(r"\d")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


DATES = _words(
    "january february march april may june july august september october november december jan feb mar apr jun jul "
    "aug sep sept oct nov dec monday tuesday wednesday thursday friday saturday sunday ad bc ce bce century centuries "
    "decade decades year years month months day days early late mid th st nd rd in on at of the since until before "
    "after about around"
)
TIMES = DATES - {"of", "the", "in", "on", "at"} | _words(
    "week weeks weekly daily monthly yearly hourly hour hours minute minutes second seconds morning noon evening night "
    "midnight today tomorrow yesterday now soon immediately later earlier always never once twice when whenever while "
    "during every each time times dawn era war summer autumn winter spring boot startup shutdown installation"
)
AMOUNTS = _words(
    "no none zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred hundreds thousand "
    "thousands million millions billion billions trillion dozen dozens half third quarter once twice both all every "
    "unlimited infinite several few many single pair couple hourly daily weekly monthly yearly annually always never "
    "seldom rarely often forever indefinitely"
)


def fits(form: Form, answer: str) -> bool:
    """Whether an answer in words is of the kind that the form asks for; any is, where the form does not tell."""
    found = {word.lower() for word in WORD.findall(answer)}
    if form in ("who", "where"):
        return bool(found - DATES)
    if form == "when":
        return bool(DIGIT.search(answer) or found & TIMES)
    if form == "how many":
        return bool(DIGIT.search(answer) or found & AMOUNTS)
    return True
