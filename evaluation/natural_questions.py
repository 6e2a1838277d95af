"""Natural questions, made from plain English sentences by rules: who, when, where, how many, what, why, how.

A sentence is split into subject, verb and rest; the answer is a part of it, and the question is the rest, inverted and
reworded. The rules skip sentences whose verb may be another part of speech and those whose subject refers to another
sentence ("it", "this"), so that a question reads like a person's. The questions are slightly easier for a card than
human ones (recipes/log.md, "Does the exam flatter?").
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from random import Random

from kcard.evaluation.metrics import substring
from kcard.training.embedded.pseudo_queries import STOP_WORDS, bare, entities, held_out_wording

_WORDS = tomllib.loads(Path(__file__).with_name("questions.toml").read_text(encoding="utf-8"))
AUXILIARIES = frozenset(_WORDS["auxiliaries"])
OPENERS = frozenset(_WORDS["openers"])
SUBORDINATE_WORDS = frozenset(_WORDS["subordinate"])
DETERMINERS = frozenset(_WORDS["determiners"])
AFTER_VERB = DETERMINERS | frozenset(_WORDS["after_verb"])
TIMES = frozenset(_WORDS["times"])
PLACES = frozenset(_WORDS["places"])
PREPOSITIONS = TIMES | PLACES | frozenset(_WORDS["prepositions"])
DANGLING_WORDS = frozenset(_WORDS["dangling"])
SYNONYMS: Mapping[str, list[str]] = _WORDS["synonyms"]

# The parts of a sentence.

MAX_SUBJECT_WORDS = 9
VAGUE_SUBJECT = re.compile(
    r"\b(?:these|those|this|that|such|latter|former|first|second|last|other|others|result|example)\b"
)
WHOLE_WORD = re.compile(r"[A-Za-z][\w'’-]*$")
STRANGE_SIGN = re.compile(r"[,;:()\[\]\"“”„]")
OPENING_TIME = re.compile(r"^((?:In|On|Since|By|During|Until|After|Before) [^,]{2,30}\d[^,]{0,20}), ")


@dataclass(frozen=True)
class Clause:
    """The parts of a sentence.

    verb   as in the sentence: a main verb or an auxiliary
    lemma  the base form of a main verb; None for an auxiliary, whose main verb is the first word of `rest`
    time   an adverbial before the subject, such as "In 1993"; "" if there is none
    """

    subject: str
    verb: str
    lemma: str | None
    rest: str
    time: str = ""

    @property
    def is_past(self) -> bool:
        return self.lemma is not None and not self.verb.endswith("s")


def parse_clause(sentence: str) -> Clause | None:
    """Split a sentence into its parts; None if they are ambiguous."""
    # An adverbial of time before the subject.
    text = " ".join(sentence.split()).rstrip(".!")
    time = ""
    timed = OPENING_TIME.match(text)
    if timed:
        time, text = timed[1], text[timed.end() :]
    # Skip fragments, questions, and sentences that begin with a participle or another opener.
    words = text.split(" ")
    if not WHOLE_WORD.match(words[0]) or (words[0].endswith("ing") and words[0][0].isupper()):
        return None
    if not 4 <= len(words) <= 40 or bare(words[0]).lower() in OPENERS or text.endswith(("?", ":")):
        return None
    # The first auxiliary or unambiguous main verb ends the subject.
    for at, raw in enumerate(words[: MAX_SUBJECT_WORDS + 1]):
        word = bare(raw).lower()
        if at == 0:
            if word in AUXILIARIES or (_lemma(word) and not words[0][0].isupper()):
                return None
            continue
        if word in SUBORDINATE_WORDS or STRANGE_SIGN.search(raw):
            return None
        if word in AUXILIARIES:
            return _make_clause(words, at, None, time)
        following = "".join(words[at + 1 : at + 2])
        if raw.islower() and _lemma(word) and _follows_verb(word, following):
            return _make_clause(words, at, _lemma(word), time)
    return None


def _make_clause(words: list[str], at: int, lemma: str | None, time: str) -> Clause | None:
    subject, rest = " ".join(words[:at]), " ".join(words[at + 1 :])
    last = bare(words[at - 1]).lower()
    if not rest or VAGUE_SUBJECT.search(subject) or last in PREPOSITIONS or last in AFTER_VERB:
        return None
    return Clause(subject, words[at], lemma, rest, time)


def _follows_verb(word: str, following: str) -> bool:
    """Return whether the next word proves that `word` is a verb: in "stores the" and "founded Debian", but not in
    "used by" (a participle) and "clips from" (maybe a noun)."""
    if following.lower() == "by" and word.endswith("ed"):
        return False
    if _is_noun(word):
        return bare(following).lower() in DETERMINERS
    return bare(following).lower() in AFTER_VERB or following[:1].isupper() or following[:1].isdigit()


@lru_cache(maxsize=50_000)
def _is_noun(word: str) -> bool:
    import lemminflect

    return "NOUN" in lemminflect.getAllLemmas(word)


@lru_cache(maxsize=50_000)
def _lemma(word: str) -> str | None:
    """Return the base form of a verb in the past tense or third person; None for any other word."""
    import lemminflect

    if not word.isalpha():
        return None
    for lemma in lemminflect.getAllLemmas(word).get("VERB", ()):
        if lemma == word:
            continue
        if word in (*lemminflect.getInflection(lemma, "VBD"), *lemminflect.getInflection(lemma, "VBZ")):
            return str(lemma)
    return None


# Rewording of questions: some words are replaced by synonyms, some adverbs are dropped.

REPLACED_SHARE = 0.5  # of the words with synonyms
DROPPED_SHARE = 0.7  # of the adverbs
ADVERBS = re.compile(
    r" (?:also|mainly|primarily|generally|usually|often|then|later|still|however|originally|currently|officially)\b"
)
WORD = re.compile(r"(?<![\w-])(?<!How )[a-z]+(?![\w-])")


def reword(question: str, rng: Random) -> str:
    """Reword the question; equal states of `rng` give equal wordings."""

    def drop_adverb(match: re.Match[str]) -> str:
        if rng.random() < DROPPED_SHARE:
            return ""
        return match[0]

    def replace_word(match: re.Match[str]) -> str:
        choices = SYNONYMS.get(match[0])
        if choices and rng.random() < REPLACED_SHARE:
            return rng.choice(choices)
        return match[0]

    return WORD.sub(replace_word, ADVERBS.sub(drop_adverb, question))


# The questions.

MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
DATE = re.compile(
    rf"\b(?:(?:\d{{1,2}} )?(?:{MONTHS})(?: \d{{1,2}}(?:st|nd|rd|th)?)?(?:,? \d{{4}})?"
    r"|[12]\d{3}s?|\d{1,2}th century)\b"
)
NUMBER = re.compile(
    r"\d[\d,.]*(?: (?:million|billion|thousand|percent))?|(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
    r"|twenty|thirty|forty|fifty|hundred)\b",
    re.IGNORECASE,
)
REASON = re.compile(r",? (?:because(?: of)?|due to|so that|in order to) ", re.IGNORECASE)
MEANS = re.compile(r" (?:by (?=\w+ing\b)|using |by means of |with the help of )")
TASK = re.compile(
    r"To ([a-z][^,]{8,80}), "
    r"((?:use|run|type|press|set|add|enter|select|choose|click|call|open|edit|pass|specify)\b.{3,})"
)
ENDS = re.compile(r"[,;:(]| (?:and|but|which|that|who|where|when|while|because|so|although|as|or|if)\b")
BEGINS = re.compile(r"(?:and|but|or) ")
PERSON = re.compile(
    r"(?:(?:Dr|Mr|Mrs|Sir|Saint|St|King|Queen|Pope|President)\.? )?"
    r"[A-Z][\w.'’-]+(?: (?:de|van|von|der|la|[A-Z]\.?))?(?: [A-Z][\w'’-]+)+$"
)
GROUPS = re.compile(
    r"\b(?:University|Company|Project|Foundation|Party|Army|Church|Council|Museum|Institute|Association|System|Act|War|"
    r"Empire|Republic|River|City|Street|College|School|League|Bowl|Treaty|Law|Linux|Software|Corporation|Inc|Ltd|States?|"
    r"Kingdom|Union|Society|Park|Island|Valley|Ocean|Sea|Lake|Mountains?|County|Parliament|Court|Station|Center|Centre)\b"
)
ARTICLES = ("The", "A", "An", "Each", "Every", "All", "Both", "Most", "Some")
BRACKETS = re.compile(r"[\"“”()\[\]{}]")
MAX_ANSWER_WORDS = 8
# Words after an answer from which they tell which other sentences the question is about.
MIN_REPEATED_WORDS = 3
FORM_WEIGHTS = {"what": 0.3}  # of forms that are drawn less often than others, whose weight is 1


@dataclass(frozen=True)
class CorpusQuestion:
    """A question with its answer, a part of a sentence, and the file of its passage.

    form    its first word, such as "who", or "cloze"
    around  the sentence's text before the answer, and after it as far as the question repeats it
    """

    text: str
    answer: str
    form: str
    around: tuple[str, str] = ("", "")
    file: str = ""


def natural_questions(sentence: str, rng: Random) -> list[CorpusQuestion]:
    """Return reworded questions that the sentence answers; none if its structure is unclear."""
    sentence = " ".join(sentence.split())
    drafts: list[tuple[str, str, str]] = []  # form, question, answer
    # How do I undo a commit?
    match = TASK.match(sentence.rstrip("."))
    if match:
        asking = "can I"
        if match[1].count(" ") % 2:
            asking = "do I"
        drafts.append(("how", f"How {asking} {match[1]}?", _clip(match[2])))
    c = parse_clause(sentence)
    if c is not None:
        rest = _clip(c.rest)
        words = c.subject.split()
        is_named = words[0][:1].isupper() and words[0] not in ARTICLES
        is_named = is_named or any(word[:1].isupper() for word in words[1:])
        # Who founded Debian? The answer is the subject without its article.
        if is_named and len(words) <= 6 and len(rest.split()) >= 3:
            form = "what"
            if _is_person(c.subject):
                form = "who"
            answer = re.sub(r"^(?:The|An?) ", "", c.subject)
            drafts.append((form, f"{form.capitalize()} {c.verb} {rest}{_time_adverbial(c)}?", answer))
        # Why was it moved? How is the list made?
        for form, pattern in (("why", REASON), ("how", MEANS)):
            match = pattern.search(c.rest)
            if match:
                question = f"{form.capitalize()} {_invert(c, _clip(c.rest[: match.start()]))}?"
                drafts.append((form, question, _clip(c.rest[match.end() :])))
        # What is a swap file?
        if c.verb in ("is", "are", "was", "were") and len(words) <= 4:
            definition = re.match(r"(?:an?|the) (.+)", rest)
            if definition and 1 < len(definition[1].split()) <= MAX_ANSWER_WORDS:
                drafts.append(("what", f"What {c.verb} {_lower_article(c.subject)}?", definition[1]))
        drafts += _ask_for_spans(c)
    # Keep specific questions whose answer is short and occurs once, and reword them.
    questions = []
    for form, text, answer in drafts:
        longest = MAX_ANSWER_WORDS
        if form in ("why", "how"):
            longest = 3 * MAX_ANSWER_WORDS
        is_short = 0 < len(answer.split()) <= longest
        is_answer = is_short and len(bare(answer)) > 1 and substring(answer, [answer])
        if is_answer and sentence.count(answer) == 1 and _is_specific(text):
            wording = re.sub(r" +([?,.])", r"\1", " ".join(reword(text, rng).split()))
            before, _, after = sentence.partition(answer)
            around = before.strip(), _repeated(after.strip().rstrip(".!?…"))
            questions.append(CorpusQuestion(wording, answer, form, around))
    return questions


def _repeated(after: str) -> str:
    """Return the part of the text after an answer that a question on it repeats; all of it if that is very short."""
    if after[:1] in ",;:":
        return ""
    repeated = _clip(after)
    if repeated.count(" ") + 1 < MIN_REPEATED_WORDS:
        return after
    return repeated


def _ask_for_spans(c: Clause) -> Iterator[tuple[str, str, str]]:
    """Yield form, question and answer for each date, number and name after the verb."""
    # The spans that may be answers; numbers and names inside a date are part of it.
    dates = [match.span() for match in DATE.finditer(c.rest)]
    spans = list(dates)
    for start, end in entities(c.rest):
        if not any(first < end and start < last for first, last in dates):
            spans.append((start, end))
    for match in NUMBER.finditer(c.rest):
        if match[0].islower() and not any(first <= match.start() < last for first, last in dates):
            spans.append(match.span())
    for start, end in sorted(spans):
        span, lead, tail = c.rest[start:end], c.rest[:start].rstrip(), c.rest[end:].lstrip()
        if ENDS.search(f"{lead} "):
            return  # the rest is in another clause
        if tail.startswith("or "):
            continue  # half of an alternative
        # The question depends on the word before the span, and on whether the span is a date, number or name.
        before = bare(lead.rpartition(" ")[2]).lower()
        without, after = lead, ""
        if before in PREPOSITIONS:
            without = lead.rpartition(" ")[0]
        if tail[:1].isalpha():
            after = _clip(tail)
        noun = re.match(r"([a-z]{3,}s)\b", tail)
        if before in TIMES and DATE.fullmatch(span):
            yield "when", f"When {_invert(c, f'{without} {after}')}?", span
        elif before in PLACES and span[:1].isupper() and not DATE.fullmatch(span) and not _is_person(span):
            yield "where", f"Where {_invert(c, f'{without} {after}')}?", span
        elif NUMBER.fullmatch(span) and noun:
            if before in DANGLING_WORDS:
                continue
            others = ""
            if tail.startswith(" ", noun.end()):
                others = _clip(tail[noun.end() :].strip())
            yield "how many", f"How many {noun[1]} {_invert(c, f'{lead} {others}')}?", span
        elif before == "by" and c.verb in AUXILIARIES and span[:1].isupper():
            yield "who", f"By {_pronoun_of(span)} {_invert(c, f'{without} {after}')}?", span
        elif not lead and c.lemma and span[:1].isupper():
            yield "what", f"{_pronoun_of(span).capitalize()} {_invert(c, after)}?", span


def _pronoun_of(name: str) -> str:
    if _is_person(name):
        return "whom"
    return "what"


def _is_specific(question: str) -> bool:
    """Return whether a question has enough content words: two with a name or number among its words, else three."""
    words = [bare(word) for word in question.split()[1:]]
    content_words = [word for word in words if len(word) > 3 and word.lower() not in STOP_WORDS]
    if BRACKETS.search(question):
        return False
    if any(word[:1].isupper() or word[:1].isdigit() for word in words):
        return len(content_words) >= 2
    return len(content_words) >= 3


def _invert(c: Clause, rest: str) -> str:
    """Return the clause with the auxiliary (or a form of do) before the subject, as in a question."""
    ending = rest.strip()
    if not DATE.search(rest):
        ending += _time_adverbial(c)
    if c.lemma is None:
        return f"{c.verb} {_lower_article(c.subject)} {ending}".strip()
    helper = "does"
    if c.is_past:
        helper = "did"
    return f"{helper} {_lower_article(c.subject)} {c.lemma} {ending}".strip()


def _time_adverbial(c: Clause) -> str:
    if not c.time:
        return ""
    return f" {c.time[0].lower()}{c.time[1:]}"


def _is_person(name: str) -> bool:
    return bool(PERSON.match(name)) and not GROUPS.search(name) and not any(map(str.isdigit, name))


def _lower_article(subject: str) -> str:
    """Return the subject with its article in lower case, for the middle of a question."""
    first, blank, rest = subject.partition(" ")
    if first not in ARTICLES:
        return subject
    return f"{first.lower()}{blank}{rest}"


def _clip(text: str) -> str:
    """Cut the text where another clause begins, and function words at its end."""
    if BEGINS.match(text):
        return ""
    end = ENDS.search(f"{text} ")
    if end:
        text = text[: end.start()]
    return re.sub(r"(?: (?:such|like|and|or|as|the|a|an|of|in|to))+$", "", text.strip(" ."))


def draw_question(sentences: Sequence[str], rng: Random) -> CorpusQuestion | None:
    """Draw a question from the first sentence that yields any, in a wording that training never uses."""
    for sentence in sentences:
        questions, weights = [], []
        for question in natural_questions(sentence, rng):
            text = held_out_wording(question.text)
            if text:
                questions.append(replace(question, text=text))
                weights.append(FORM_WEIGHTS.get(question.form, 1.0))
        if not questions:
            continue
        # A sentence whose questions are all of a rare form is passed over as often as the form is rare.
        if rng.random() < FORM_WEIGHTS["what"] or max(weights) == 1.0:
            return rng.choices(questions, weights)[0]
    return None
