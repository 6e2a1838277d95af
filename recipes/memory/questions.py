"""Rewordings of the memory's questions, and questions whose right answer is "unknown".

`reworded` never uses a held-out form; only calibration and evaluation use the forms in `HELD_OUT`.
"""

import random
import re
from collections.abc import Iterable, Iterator

from recipes.reader.synth import fill, frames
from recipes.reader.words import Words

FORMS = [
    (
        r"What is the (.+?) of (.+)\?",
        ["What is {2}'s {1}?", "Name the {1} of {2}.", "{2}: {1}?", "Which is the {1} of {2}?"],
    ),
    (
        r"What is the (.+?) of (.+)\?",
        ["The {1} of {2} is what?", "What {1} does {2} have?", "What's the {1} of {2}?"],
    ),
    (r"What is the capital of (.+)\?", ["Which city is the capital of {1}?", "What is {1}'s capital city?"]),
    (r"What is the capital of (.+)\?", ["{1} is governed from where?", "Capital of {1}?"]),
    (
        r"What is the state capital of (.+)\?",
        ["What is the capital of {1}?", "Which city is the capital of {1}?"],
    ),
    (
        r"What is the chemical symbol of (.+)\?",
        ["Which symbol stands for {1}?", "How is {1} written in chemistry?"],
    ),
    (
        r"What is the official language of (.+)\?",
        ["Which language is spoken in {1}?", "What do people in {1} speak?"],
    ),
    (r"What is the currency of (.+)\?", ["Which money is used in {1}?", "What currency does {1} use?"]),
    (r"On which continent is (.+)\?", ["Which continent is {1} on?", "{1} is on what continent?"]),
    (r"On which continent is (.+)\?", ["What continent does {1} belong to?"]),
    (r"In which country is (.+)\?", ["Which country is {1} in?", "Where is {1}?", "In what country is {1}?"]),
    (r"In which country is (.+)\?", ["{1} is in which country?"]),
    (
        r"Who wrote (.+)\?",
        ["Who is the author of {1}?", "Which author wrote {1}?", "{1} is by which writer?"],
    ),
    (r"Who wrote (.+)\?", ["Author of {1}?", "Who was {1} written by?"]),
    (
        r"Who directed the film (.+)\?",
        ["Who was the director of {1}?", "Who directed {1}?", "Director of {1}?"],
    ),
    (
        r"Who painted (.+)\?",
        ["Which artist painted {1}?", "{1} was painted by whom?", "Who is the painter of {1}?"],
    ),
    (r"Who composed (.+)\?", ["Who was the composer of {1}?", "Which composer wrote {1}?"]),
    (r"Who invented (.+)\?", ["Who was the inventor of {1}?", "{1} was invented by whom?"]),
    (r"In which year (.+)\?", ["In what year {1}?", "When {1}?"]),
    (
        r"In which country is (.+)\?",
        ["{1}: which country?", "{1} is found in what country?", "{1} belongs to which country?"],
    ),
    (
        r"Who directed the film (.+)\?",
        ["{1} is a film by whom?", "Who made the film {1}?", "{1} was directed by whom?"],
    ),
    (
        r"Who (wrote|painted|composed|invented|discovered|created) (.+)\?",
        ["Who was it that {1} {2}?", "{2}: who {1} it?"],
    ),
    (r"Which (.+)\?", ["What {1}?"]),
    (r"What (.+)\?", ["Which {1}?", "what {1}"]),
    (r"Who was (.+)\?", ["Name {1}.", "Tell me who was {1}."]),
]
HELD_OUT = [
    (r"What is the (.+?) of (.+)\?", "{2} has which {1}?"),
    (r"Who wrote (.+)\?", "{1} was written by whom?"),
    (r"Who directed the film (.+)\?", "Which director shot {1}?"),
    (r"In which country is (.+)\?", "What country can {1} be found in?"),
    (r"On which continent is (.+)\?", "{1} lies on which continent?"),
    (r"In which year (.+)\?", "Which year was it when {1}?"),
    (r"(Who|Which|How|What|Of|Through) (.+)\?", "In short, {1} {2}?"),
]
OPENINGS = ["Question: ", "hey, ", "quick question: ", "so ", "i wonder, ", "one more: ", "ok, "]
FILLERS = [
    "please",
    "exactly",
    "the",
    "again",
    "actually",
    "now",
    "really",
    "then",
    "called",
    "name",
    "well",
    "just",
]
SMALL = {"the", "is", "of", "a", "was", "did", "in", "are", "does", "do", "for", "to"}
NAME = r"[A-Z][\w'.-]*"
ENTITY = re.compile(rf"(?<=\s){NAME}(?:\s(?:(?:of|the|de|and|in|von|van|to|for|on|a)\s)*{NAME})*")


def reworded(question: str, rng: random.Random) -> str:
    """The question as it stands, or asked in another form, with fillers, or carelessly."""
    forms = list(_forms(question))
    text = rng.choice(forms) if forms and rng.random() < 0.55 else question
    return _noisy(text, rng)


def held_out(question: str) -> str | None:
    """The question in the first held-out form that fits."""
    for pattern, form in HELD_OUT:
        if match := re.fullmatch(pattern, question):
            return _expand(match, form)
    return None


def _forms(question: str) -> Iterator[str]:
    for pattern, forms in FORMS:
        if match := re.fullmatch(pattern, question):
            yield from (_expand(match, form) for form in forms)


def _expand(match: re.Match[str], form: str) -> str:
    for number, value in enumerate(match.groups(), 1):
        form = form.replace(f"{{{number}}}", value)
    return form


def _noisy(text: str, rng: random.Random) -> str:
    words = text.split()
    style = rng.random()
    if style < 0.15:
        for _ in range(rng.randint(1, 2)):
            words.insert(rng.randint(0, len(words)), rng.choice(FILLERS))
    elif style < 0.35 and len(words) > 4:
        words = [word for word in words if word.lower() not in SMALL or rng.random() < 0.5]
    elif style < 0.42 and len(words) > 4:
        cut = rng.randint(2, len(words) - 2)
        words = [*words[cut:], *words[:cut]]
    return (rng.choice(OPENINGS) if rng.random() < 0.1 else "") + " ".join(words)


class Unanswerable:
    """Questions in the shape of known ones about something that no fact names; `facts` are all questions asked."""

    def __init__(self, facts: Iterable[str], words: Words) -> None:
        self.words = words
        self.facts = list(facts)
        self._taken = {_bare(form) for fact in self.facts for form in (fact, *_forms(fact))}

    def draw(self) -> str:
        """One question, in a wording of its own."""
        rng = self.words.rng
        while True:
            text = self._renamed() if rng.random() < 0.5 else self._of_a_frame()
            if text and _bare(text) not in self._taken:
                return reworded(text, rng)

    def _of_a_frame(self) -> str:
        frame = self.words.rng.choice(frames())
        values = {letter: self.words.draw(kind) for letter, kind in frame.slots}
        return fill(self.words.rng.choice(frame.questions)[1], values)

    def _renamed(self) -> str:
        """A fact's question with its name exchanged: for an invented one, a common one, or one of another relation."""
        rng = self.words.rng
        question, other = rng.choice(self.facts), rng.choice(self.facts)
        here, there = list(ENTITY.finditer(question)), list(ENTITY.finditer(other))
        if not here:
            return ""
        if rng.random() < 0.7:
            name = self.words.draw(rng.choice(KINDS_OF_NAMES))
        elif there and question.split()[:3] != other.split()[:3]:
            name = there[-1].group()
        else:
            return ""
        return question[: here[-1].start()] + name + question[here[-1].end() :]


KINDS_OF_NAMES = (
    "name",
    "name",
    "place",
    "person",
    "title",
    "country",
    "region",
    "thing",
    "species",
    "company",
)


def _bare(text: str) -> str:
    """What counts of a question: its words without case, marks and small words, sorted."""
    words = re.findall(r"\w+", text.lower())
    return " ".join(sorted(word for word in words if word not in SMALL | {"what", "which", "state", "city"}))
