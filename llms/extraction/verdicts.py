"""Yes or no: the clause of a passage that speaks of what is asked, and what it says.

A verdict is given only if one clause has all of the question's content words, and neither an "only" nor a condition nor
"usually" stands between them; else there is none.
"""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from kcard.embedded.question_forms import AMOUNTS, NUMERALS, STEMS
from kcard.llms.extraction.clauses import (
    ANAPHORIC,
    AUXILIARY,
    BAN,
    SpokenClause,
    clauses_of,
    light_stems,
    sign_of,
    stems_of_word,
    telling_stems,
    with_plain_idioms,
)
from kcard.llms.extraction.times import weekdays

DUTY = re.compile(
    r"\b(?:must|needs?|needed|(?:have|has|had) to|requires?|required|necessary|mandatory|compulsory|obligatory"
    r"|obliged)\b",
    re.IGNORECASE,
)
LEAVE = re.compile(
    r"\b(?:may|can|could|allow(?:s|ed)?|permit(?:s|ted)?|permissible|welcome|possible|admitted|accepted|entitled"
    r"|eligible|able|ok|okay|fine|safe(?:ly)?|good idea|free to|open to)\b",
    re.IGNORECASE,
)
LEAVE_AS_PREDICATE = re.compile(
    rf"\b(?:allowed|permitted|permissible|welcome|fine|safe|ok|okay|good idea|entitled|eligible)\b|{BAN.pattern}",
    re.IGNORECASE,
)
FORBIDDING_OPENING = re.compile(r"(?:please )?(?:do not|don['’]t|never|no)\b", re.IGNORECASE)
NO_LEAVE = re.compile(r"\b(?:must|may|can)(?:\s?not|n['’]t)\b|\bmust (?:\w+ )?never\b", re.IGNORECASE)
MAYBE = re.compile(r"\b(?:may|might|could|should)\b", re.IGNORECASE)
HEDGE = re.compile(
    r"\b(?:usually|often|sometimes|rarely|seldom|mostly|normally|generally|partly|some|most|few|almost|hardly"
    r"|not (?:all|every|always|necessarily|both))\b",
    re.IGNORECASE,
)
PAST = re.compile(r"\b(?:was|were|had|did|used to|formerly|previously)\b", re.IGNORECASE)
PRESENT = re.compile(r"\b(?:is|are|may|can|cannot|must|has|have|do|does)\b", re.IGNORECASE)
FUTURE = re.compile(r"\b(?:will|shall)\b", re.IGNORECASE)
# Pairs of words of which one denies what the other affirms.
_OPPOSITES = """
open closed, open shut, open locked, locked unlocked, hot cold, hot cool, warm cold, wet dry, included excluded,
included extra, optional mandatory, optional compulsory, voluntary mandatory, voluntary compulsory, full empty,
public private, safe unsafe, safe dangerous, free taken, free occupied, lost won, enabled disabled, active inactive,
automatic manual, visible hidden, temporary permanent, valid invalid
"""
_PREPOSITIONS = """
in on at to for from with by under over above below during after before until till since within outside inside between
near if when while through into about against of who which whose that
"""
PREPOSITIONS = frozenset(_PREPOSITIONS.split())
PREPOSITION = re.compile(rf"\b(?:{'|'.join(sorted(PREPOSITIONS))})\b", re.IGNORECASE)
ADVERBS = frozenset({"again", "alone", "first", "once", "together", "twice"})
JOINING_WORDS = frozenset({"and", "or", "nor", "as", "well"})
ONLY = re.compile(r"\bonly\b", re.IGNORECASE)
TOKEN = re.compile(r"\w[\w.+/-]*\w|\w|[,;:]")
ARTICLES = frozenset({"a", "an", "the", "my", "our", "your", "any"})
DIRECT = re.compile(
    r"(?:(?:a|answer): +)?(?:(?:in general|generally|in short|usually),? )?(yes|no)\b(?=[,.:;!]| [–—-])",
    re.IGNORECASE,
)
LIGHT_VERB = re.compile(r"\b(?:use|have|get|go|come|take|bring|make|keep)\b", re.IGNORECASE)
HARMLESS = frozenset({"of", "by", "with", "from", "about", "through", "to"})  # in what affirms
MANY_OTHERS = 4  # content words that the question lacks
SAME_QUESTION = 0.6  # share of its content words in another question

# Limits of a number: "only one key", "at most two dogs".
_NUMBER = rf"(\d+|{'|'.join(NUMERALS)})"
LIMIT = re.compile(
    rf"\b(?:only|(?:at|not|no) (?:most|more than)|up to|a maximum of) (?:a single|{_NUMBER}) (\w+)",
    re.IGNORECASE,
)
AMOUNT = re.compile(rf"\b(?:several|{_NUMBER}) (?:different |other )?(\w+)", re.IGNORECASE)
MIN_SEVERAL = 2
SOURCE = re.compile(r"\bfrom (?:an? |the )?(\w+)", re.IGNORECASE)
TARGET = re.compile(r"\bto (?:an? |the )?(\w+)", re.IGNORECASE)


@cache
def opposites() -> Mapping[str, set[str]]:
    """Return the opposites of each stem that has some."""
    opposed: dict[str, set[str]] = {}
    for pair in _OPPOSITES.split(","):
        first, second = pair.split()
        for word, other in ((first, second), (second, first)):
            for stem in stems_of_word(word):
                opposed.setdefault(stem, set()).update(stems_of_word(other))
    return opposed


# The verdict.


@dataclass(frozen=True)
class YesNo:
    """A verdict, and the first and last of the sentences that it rests on."""

    is_yes: bool
    first: int
    last: int


@dataclass(frozen=True)
class _Query:
    """What a question of yes or no asks.

    stems, days  content words, and days of the week
    required     the content words that the heading of the passage lacks; all of them if it has them all
    kind         "duty", "leave" or "fact"
    says         -1 if it asks whether something is not so, or forbidden
    """

    text: str
    stems: frozenset[str]
    required: frozenset[str]
    days: frozenset[int]
    kind: str
    says: int


def _asked(question: str, heading: str) -> _Query:
    kind = "fact"
    if DUTY.search(question):
        kind = "duty"
    elif LEAVE.search(question) or BAN.search(question):
        kind = "leave"
    # "Isn't it open?" asks whether it is open.
    rest = question.partition(" ")[2]
    stems = telling_stems(question)
    required = stems - telling_stems(heading) or stems
    return _Query(question, stems, required, weekdays(question), kind, sign_of(rest))


def decide(question: str, sentences: Sequence[str], heading: str = "") -> YesNo | None:
    """Return whether successive sentences of a passage say yes or no; None if that is in doubt. What the question names
    may stand in the passage's heading."""
    question = with_plain_idioms(question)
    query = _asked(question, heading)
    direct = _direct_answer(query, sentences, heading)
    if direct is not None:
        return direct
    if not query.stems or re.search(r"\bor\b", question, re.IGNORECASE):
        return None
    has_without = bool(re.search(r"\bwithout\b", question, re.IGNORECASE))
    clauses = []
    for clause in clauses_of(sentences, cuts_without=not has_without):
        # What a text asks, such as a question of a FAQ, it does not say.
        if not sentences[clause.row].rstrip("\"'”’*_ ").endswith("?"):
            clauses.append(clause)
    by_number = _decide_by_number(query, clauses)
    if by_number is not None:
        return by_number
    # Of the clauses that have all of the question's words, that one tells which has most of them as its own, in order.
    best, signs = (0, 0, 0), list[int]()
    telling: SpokenClause | None = None
    for at, clause in enumerate(clauses):
        following = None
        if at + 1 < len(clauses) and clauses[at + 1].row == clause.row:
            following = clauses[at + 1]
        match = _match(query, clause, following)
        if match is not None:
            sign, own = match
            is_clear = _is_clear(query, clause, following, sign)
            others = len(clause.stems - query.stems) // MANY_OTHERS
            rank = own, _common_order(query.text, clause.text), -others
            if telling is None or rank > best:
                best, signs, telling = rank, [], clause
            if rank == best:
                signs.append(sign * query.says * is_clear)
    if telling is None:
        return _decide_by_contrast(query, clauses)
    if len(set(signs)) > 1 or not signs[0]:
        return None
    return YesNo(signs[0] > 0, telling.first, telling.row)


def _direct_answer(query: _Query, sentences: Sequence[str], heading: str) -> YesNo | None:
    """Return the verdict of a sentence that begins with yes or no after a heading or sentence that asks this."""
    leads = [heading, *sentences]
    for row, (lead, sentence) in enumerate(zip(leads, sentences, strict=False)):
        word = DIRECT.match(sentence)
        if word and len(query.stems & telling_stems(lead)) >= SAME_QUESTION * len(query.stems):
            return YesNo(word[1].lower() == "yes", row, row)
    return None


def _match(query: _Query, clause: SpokenClause, following: SpokenClause | None) -> tuple[int, int] | None:
    """Return what a clause that has all of the question's words says (1 or -1), and how many of them are its own;
    None if it lacks one. The opposite of a word, such as "closed" of "open", turns what it says."""
    own = len(query.stems & clause.stems) + bool(query.days & weekdays(clause.text))
    sign = clause.says
    for stem in query.required - clause.all_stems:
        opposing = opposites().get(stem, set()) & clause.stems
        if not opposing or _is_attribute(query, clause.text, opposing):
            return None
        sign = -sign
        own += 1
    if query.days and not query.days <= clause.days:
        # On days that are no exception.
        exempts = following is not None and following.is_exception and bool(following.days)
        if clause.days or following is None or not exempts or query.days & following.days:
            return None
    if not own:
        return None
    return sign, own


def _is_attribute(query: _Query, text: str, stems: Set[str]) -> bool:
    """Return whether one of these words stands right before a word of the question: "the manual brake is worn" denies
    nothing about an automatic one."""
    for token, following in pairwise(TOKEN.findall(text)):
        if telling_stems(token) & stems and _is_asked(query, following):
            return True
    return False


def _is_clear(query: _Query, clause: SpokenClause, following: SpokenClause | None, sign: int) -> bool:
    """Return whether nothing in the clause, but not in the question, leaves the verdict in doubt."""
    text, context = clause.text, clause.context
    if _unlike_kind(query, clause) or _has_swapped_ends(query.text, text):
        return False
    # Tense and limits.
    is_past = bool(PAST.search(text)) and not PRESENT.search(text) and not clause.is_exception
    if is_past and not PAST.search(query.text):
        return False
    if FUTURE.search(text) and not FUTURE.search(query.text):
        return False
    if HEDGE.search(context) and not HEDGE.search(query.text):
        return False
    if ONLY.search(text):
        limit = _limit(text)
        if limit is None or not (limit.stems & query.stems or limit.days & query.days):
            return False
    return not _is_narrower(query, clause, following, sign)


def _unlike_kind(query: _Query, clause: SpokenClause) -> bool:
    """Return whether one speaks of duty, leave or fact, and the other of something else."""
    text, context = clause.text, clause.context
    if query.kind == "duty":
        return not DUTY.search(context) or bool(NO_LEAVE.search(text))
    if query.kind == "leave":
        if LEAVE.search(context) or BAN.search(context) or NO_LEAVE.search(context):
            return False
        # "Geese are old" does not say whether they are allowed, nor "You have a key" whether one may have it.
        if LEAVE_AS_PREDICATE.search(query.text) and not FORBIDDING_OPENING.match(text):
            return True
        verb = LIGHT_VERB.search(query.text)
        repeats = verb is None or bool(re.search(rf"\b{verb[0]}\b", context, re.IGNORECASE))
        return bool(DUTY.search(context)) or not repeats
    return bool(DUTY.search(text)) or bool(MAYBE.search(text) and not MAYBE.search(query.text))


def _is_narrower(query: _Query, clause: SpokenClause, following: SpokenClause | None, sign: int) -> bool:
    """Return whether the clause speaks of less than the question: of "supporting members" where it asks about members,
    or only of what stands in a phrase that the question lacks."""
    is_opposed = following is not None and following.is_opposed and following.says != clause.says
    asks_ever = bool(re.search(r"\bever\b", query.text, re.IGNORECASE))
    limits_all = clause.says < 0 or is_opposed
    auxiliary = AUXILIARY.search(clause.text)
    begin = 0
    if auxiliary and not clause.is_opposed:
        begin = auxiliary.start()
    if _has_modifier(query, clause.text, begin, allows_numbers=sign > 0):
        return True
    spares = HARMLESS
    if limits_all:
        spares = frozenset()
    if _lacks_phrase(query, clause.text[begin:], spares=spares, asks_ever=asks_ever):
        return True
    # The subject, also where it stands in the clause before.
    is_shared = bool(clause.inherited) and not ANAPHORIC.match(clause.text)
    is_shared = is_shared and bool(telling_stems(clause.subject) & query.stems)
    subjects = [clause.text[:begin]]
    if is_shared:
        subjects.append(clause.subject)
    # "The depot of the harbour" is what "the depot" means.
    is_definite = bool(re.search(r"\bthe\b", query.text, re.IGNORECASE))
    for subject in subjects:
        spares = frozenset()
        if is_definite and subject.lower().startswith("the "):
            spares = frozenset({"of"})
        if _lacks_phrase(query, subject, spares=spares, asks_ever=False):
            return True
    return is_shared and _has_modifier(query, clause.subject, len(clause.subject), allows_numbers=False)


def _has_modifier(query: _Query, text: str, subject_end: int, *, allows_numbers: bool) -> bool:
    """Return whether a word that the question lacks stands right before one of its words, or behind one in the subject
    or at the end: "supporting members", "tickets bought online may", "in the free edition"."""
    places = list(TOKEN.finditer(text))
    tokens = [place[0].lower() for place in places]
    unasked = [_is_unasked(query, token) and not token.endswith("ly") for token in tokens]
    has_asked = [_is_asked(query, token) for token in tokens]
    last = -1
    for at, is_asked in enumerate(has_asked):
        if is_asked:
            last = at
    for at in range(1, len(tokens)):
        before = tokens[at - 1]
        is_number = before.isdigit() or before in AMOUNTS
        is_passed_over = before == "without" or (is_number and allows_numbers)
        if has_asked[at] and unasked[at - 1] and not is_passed_over:
            return True
        is_behind = places[at].start() < subject_end or (at - 1 == last and tokens[at] not in ADVERBS)
        if has_asked[at - 1] and unasked[at] and is_behind:
            return True
    return False


def _lacks_phrase(query: _Query, text: str, *, spares: frozenset[str], asks_ever: bool) -> bool:
    """Return whether a phrase of the text that begins with a preposition is not in the question; of phrases that are
    joined by "and", one is enough. `spares`: prepositions whose phrases limit nothing."""
    if asks_ever and spares:
        return False
    tokens = TOKEN.findall(text)
    last = -1
    for at, token in enumerate(tokens):
        if _is_asked(query, token):
            last = at
    lacking: list[bool] = []  # of each group of joined phrases
    end, is_joined = 0, False
    for at, token in enumerate(tokens):
        if token.lower() not in PREPOSITIONS:
            continue
        between = [word.lower() for word in tokens[last + 1 : at]]
        if 0 <= last < at and "and" in between[:-1]:
            break  # "is green and stands in Oslo"
        is_joined = at > 0 and at == end and (tokens[at - 1].lower() in JOINING_WORDS or is_joined)
        end = at + 1
        while end < len(tokens) and not _ends_phrase(tokens[end]):
            end += 1
        is_known = is_new = False
        for word in tokens[at:end]:
            is_known = is_known or _is_asked(query, word)
            is_new = is_new or _is_unasked(query, word)
        is_lacking = is_new and not is_known and token.lower() not in spares
        if is_joined and lacking:
            lacking[-1] = lacking[-1] and is_lacking
        else:
            lacking.append(is_lacking)
    return any(lacking)


def _is_asked(query: _Query, token: str) -> bool:
    """Return whether a word carries content of the question."""
    if token.lower() in PREPOSITIONS or token.lower() == "without":
        return False
    return bool(telling_stems(token) or weekdays(token)) and not _is_unasked(query, token)


def _is_unasked(query: _Query, token: str) -> bool:
    """Return whether a word carries content that the question lacks."""
    days = weekdays(token)
    if days:
        return not days & query.days
    stems = telling_stems(token)
    opposed = any(opposites().get(stem, set()) & stems for stem in query.stems)
    return bool(stems - light_stems()) and not opposed and not stems & query.stems


def _ends_phrase(token: str) -> bool:
    word = token.lower()
    return word in PREPOSITIONS or word in ",;:" or bool(AUXILIARY.fullmatch(word))


def _stems_in_order(text: str) -> list[str]:
    stems: list[str] = []
    for word in TOKEN.findall(text):
        stems += telling_stems(word)
    return stems


def _common_order(question: str, text: str) -> int:
    """Return the length of the longest sequence of content stems that both have in the same order."""
    first, second = _stems_in_order(question), _stems_in_order(text)
    lengths = [0] * (len(second) + 1)
    for stem in first:
        diagonal = 0
        for at, other in enumerate(second, 1):
            above = lengths[at]
            if stem == other:
                lengths[at] = diagonal + 1
            else:
                lengths[at] = max(above, lengths[at - 1])
            diagonal = above
    return lengths[-1]


@dataclass(frozen=True)
class _Limit:
    """What "only" names: its content words and days, and its place: "subject", "object", or its preposition."""

    stems: frozenset[str]
    days: frozenset[int]
    place: str


def _limit(text: str) -> _Limit | None:
    """Return what a clause with "only" is limited to, such as "only by a workshop" or "for residents only"."""
    only = ONLY.search(text)
    if only is None:
        return None
    before, after = text[: only.start()], text[only.end() :].strip(" ,.;:!")
    auxiliary, phrase = AUXILIARY.search(after), PREPOSITION.search(after)
    place = "object"
    if not after:
        # "for residents only": the last phrase before it.
        part, place = before, "subject"
        for match in PREPOSITION.finditer(before):
            part = before[match.start() :]
    elif auxiliary and auxiliary.start() == 0:
        # "can only be replaced by a workshop"
        phrase = PREPOSITION.search(after, auxiliary.end())
        part = ""
        if phrase:
            part = after[phrase.start() :]
    elif auxiliary:
        # "only coaches may"
        part, place = after[: auxiliary.start()], "subject"
    else:
        # "only oil in winter", "only in winter"
        part = after
        if phrase and phrase.start():
            part = after[: phrase.start()]
    preposition = PREPOSITION.match(part)
    if preposition:
        place = preposition[0].lower()
    return _Limit(telling_stems(part), weekdays(part), place)


def _has_swapped_ends(question: str, text: str) -> bool:
    """Return whether what one has behind "from" stands behind "to" in the other."""
    asked_sources, asked_targets = _stems_behind(SOURCE, question), _stems_behind(TARGET, question)
    sources, targets = _stems_behind(SOURCE, text), _stems_behind(TARGET, text)
    return bool(asked_sources & targets - asked_targets or asked_targets & sources - asked_sources)


def _stems_behind(preposition: re.Pattern[str], text: str) -> set[str]:
    stems = set[str]()
    for word in preposition.findall(text):
        stems |= stems_of_word(word)
    return stems


def _decide_by_number(query: _Query, clauses: Sequence[SpokenClause]) -> YesNo | None:
    """Return the verdict of a clause that limits the number of what the question counts: "only one key", where it asks
    about two keys. Where the number is above the limit, the question's other words may stand in other clauses."""
    amount = AMOUNT.search(query.text)
    if amount is None:
        return None
    counted = set(STEMS(amount[2]))
    others = query.required - telling_stems(amount[0])
    anywhere = frozenset[str]().union(*(clause.all_stems for clause in clauses))
    for clause in clauses:
        limit = LIMIT.search(clause.text)
        if limit is None or set(STEMS(limit[2])) != counted or clause.says != query.says:
            continue
        rest = LIMIT.sub("", clause.text).replace("at once", "")
        subject = telling_stems(LIMIT.sub("", clause.subject))
        is_about_others = not subject <= query.stems or _lacks_phrase(
            query, rest, spares=HARMLESS, asks_ever=False
        )
        if is_about_others or HEDGE.search(rest):
            continue
        is_above = _value(amount[1], MIN_SEVERAL) > _value(limit[1], 1)
        stems = clause.all_stems
        if is_above:
            stems = anywhere
        if others <= stems:
            return YesNo(not is_above, clause.first, clause.row)
    return None


def _value(number: str | None, otherwise: int) -> int:
    if number is None:
        return otherwise
    if number.isdigit():
        return int(number)
    return NUMERALS.index(number.lower()) + 1


def _decide_by_contrast(query: _Query, clauses: Sequence[SpokenClause]) -> YesNo | None:
    """Return the opposite of a clause that is limited to something else than what the question names in its place:
    "for residents only" where it asks about visitors, "except on Fridays" where it asks about Tuesdays."""
    verdicts = []
    for clause in clauses:
        missing = query.required - clause.all_stems
        other_days = bool(query.days and clause.days and not query.days & clause.days)
        if clause.is_exception and not missing and other_days and query.stems & clause.stems:
            verdicts.append((-clause.says * query.says, clause))
            continue
        limit = _limit(clause.text)
        if (
            limit is None
            or LIMIT.search(clause.text)
            or limit.stems & query.stems
            or not query.stems & clause.stems
        ):
            continue
        if limit.days:
            is_other = not missing and other_days
        else:
            is_other = bool(missing) and bool(limit.stems) and _stands_in_place(query, missing, limit.place)
        if is_other and not _unlike_kind(query, clause):
            verdicts.append((-clause.says * query.says, clause))
    signs = {sign for sign, _ in verdicts}
    if len(signs) != 1:
        return None
    clause = verdicts[0][1]
    return YesNo(signs.pop() > 0, clause.first, clause.row)


def _stands_in_place(query: _Query, missing: frozenset[str], place: str) -> bool:
    """Return whether the words that a clause lacks are the question's subject, the object at its end, or in its phrase
    with a preposition."""
    tokens = [token for token in TOKEN.findall(query.text) if token.lower() not in ARTICLES]
    places = [at for at, token in enumerate(tokens) if telling_stems(token) & missing]
    if not places or places[-1] - places[0] >= len(missing) + 1:
        return False
    before = ""
    if places[0]:
        before = tokens[places[0] - 1].lower()
    if place == "subject":
        return places[0] == 1
    if place == "object":
        has_rest = len(query.stems) >= 3 and len(missing) == 1
        return has_rest and places[-1] == len(tokens) - 1 and before not in PREPOSITIONS
    return before == place
