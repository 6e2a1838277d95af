"""Question forms: the kind of answer that a question asks for."""

import re
from collections.abc import Set
from typing import Literal

from kcard.text import analyzer

Form = Literal["yes/no", "how", "why", "list", "who", "when", "where", "how many", "what"]

SENTENCES: tuple[Form, ...] = ("how", "why", "list")  # answered with sentences
AUXILIARY = (
    r"(?:is|are|was|were|am|do|does|did|can|could|will|would|shall|should|has|have|had|may|might|must|need"
    r"|isn't|aren't|wasn't|weren't|doesn't|don't|didn't|can't|couldn't|won't|wouldn't|shouldn't|hasn't|haven't)"
)
FILLER = re.compile(
    r"^(?:(?:hi|hello|hey|please|question|q|so|and|but|ok|okay|well|also|sorry|quick question)\b[\s,:!.-]*"
    r"|(?:(?:can|could|would) (?:you|anyone|somebody|someone) (?:please )?(?:tell me|say|explain)|please tell me"
    r"|tell me|do you know|does anyone know|i (?:want|need|would like) to know|i wonder|i'm wondering)\b[\s,:]*"
    r"(?:if\b|whether\b)?\s*)+"
)
CLAUSES = re.compile(r"[,:;.–—-]\s+|\s+[–—-]\s+")
# A plural noun, and the words that follow it but not a singular one ("Which option makes ...").
PLURAL = r"(?!(?:status|series|https|always|does|this|these|those|canvas|lens)\b)\w{3,}(?<![suai'])s"
MODIFIERS = r"(?:(?!(?:in|of|for|which|is|do|does|did|has|to)\b)[\w-]+ ){0,3}?"
OF = r"(?: of (?:\w+ ){0,2}\w+)?"
PLURAL_VERB = (
    r"(?:do|does|did|is|was|will|would|could|has|had|apply|count|exist|belong|make|support|affect|include)"
)
# The first pattern that matches the beginning of a clause determines the form.
FORMS: tuple[tuple[Form, str], ...] = (
    (
        "how many",
        r"(?:(?:up |down |by )?(?:to|for|in|into|after|within|at|by|with|of|from|since|about|on|between|roughly) )?"
        r"(?:how (?:many|much|long|often|old|far|big|large|tall|deep|high|wide|fast|soon|frequently)\b"
        r"|(?:what|which) (?:number|percentage|share|amount|size|port|age)\b)",
    ),
    (
        "why",
        r"(?:why|how come|for what reason|is there (?:a|any) reason|what makes"
        r"|what(?:'s| is| was| are| were)? the "
        r"(?:reason|purpose|point|rationale|cause|benefit|advantage|idea|motivation))",
    ),
    (
        "list",
        r"(?:list|enumerate|name (?:all|three|two|four|five|some|(?:the )?(?:\w+ )?\w+(?<![sui])s)\b"
        r"|give (?:me )?(?:a list|the list|all)"
        r"|the steps|steps"
        r"|(?:in |under )?(?:what|which) (?:kinds|sorts|types|things|ways|situations|conditions|cases|information|items"
        r"|steps|values|options|parts|fields|themes)\b"
        r"|(?:what|which) (?:are|were)\b"
        r"|(?:what|which) (?:\w+ ){0,3}\w+s (?:are|can|do|may|exist|belong|have|should|must)\b"
        rf"|(?:(?:in|under|for|with|to|on|at|from|by) )?(?:what|which) {MODIFIERS}{PLURAL}{OF} {PLURAL_VERB}\b)",
    ),
    (
        "how",
        r"(?:how\b|in (?:what|which) way\b|what (?:do|can|should|must|could|would) (?:i|we|you|one|they)\b"
        r"|what (?:to do|now)\b|what(?:'s| is) the (?:way|best way|command|procedure|first thing) (?:to|for))",
    ),
    ("who", r"(?:(?:to|by|from|with|for|of) )?(?:who|whom|whose|who's)\b"),
    (
        "when",
        r"(?:(?:since|until|till|from|by|in|on|at|during|before|after|up to) )?"
        r"(?:when\b|(?:what|which) (?:year|date|day|month|time|century|decade|era|moment)\b)",
    ),
    (
        "where",
        r"(?:(?:from|to) )?(?:where\b|(?:in |to |at |under |into |on )?(?:what|which) "
        r"(?:directory|folder|file|place|city|country|path|location|page|section|menu)\b)",
    ),
    (
        "how",
        r"(?:can|could|will|would) (?:you|anyone|anybody|someone|somebody)\b(?: (?:please|kindly|also|just))* "
        r"(?:explain|help|guide|tell|describe|show|instruct|provide|give|suggest|advise|assist|teach|walk|clarify"
        r"|let me know)\b",
    ),
    ("yes/no", rf"{AUXILIARY}\b(?!\s*\?)"),
    ("what", r"(?:which|what|(?:name|state|identify|give (?:me )?the name of) (?:the|a|an|one)\b)"),
)
WHICH = re.compile(
    r"\bwhich\b|\bwhat (?:\w+ )?(?:name|year|date|person|city|country|option|flag|command|file)\b",
    re.IGNORECASE,
)
QUESTION_WORD = re.compile(r"\b(who|whom|whose|when|where|why|how|which|what)\b")


def asks_for_words(question: str, form: Form) -> bool:
    """Return whether the question asks for a name, place, time or number."""
    return form in ("who", "when", "where", "how many") or (form == "what" and bool(WHICH.search(question)))


def form_of(question: str) -> Form:
    """Classify an English question. A condition may precede its main clause ("If the disk is full, does it stop?").
    Without a question word it counts as a task ("change the time zone"), which asks how."""
    text = FILLER.sub("", " ".join(question.lower().replace("’", "'").split()))
    for clause in [text, *CLAUSES.split(text)[1:]]:
        for form, pattern in FORMS:
            if re.match(pattern, clause):
                return form
    if word := QUESTION_WORD.search(text):
        return next(form for form, pattern in FORMS if re.match(pattern, text[word.start() :]))
    return "how"


# Answer types: a year does not answer "who", and a name does not answer "how many".

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
    "during every each time times dawn era war summer autumn winter spring boot startup shutdown installation one two "
    "three four five six seven eight nine ten eleven twelve o'clock oclock half quarter sunrise sunset dusk lunchtime"
)
NUMERALS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
AMOUNTS = _words(
    "no none zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred hundreds thousand "
    "thousands million millions billion billions trillion dozen dozens half third quarter once twice both all every "
    "unlimited infinite several few many single pair couple hourly daily weekly monthly yearly annually always never "
    "seldom rarely often forever indefinitely"
)


def fits(form: Form, answer: str) -> bool:
    """Return whether an answer span is of the kind that the form asks for; always true for open forms."""
    answer_words = {word.lower() for word in WORD.findall(answer)}
    if form in ("who", "where"):
        return bool(answer_words - DATES)
    if form == "when":
        return bool(DIGIT.search(answer) or answer_words & TIMES)
    if form == "how many":
        return bool(DIGIT.search(answer) or answer_words & AMOUNTS)
    return True


HOW_MANY = re.compile(r"\bhow many\b", re.IGNORECASE)
NO_COUNT = _words(  # AMOUNTS that say how much or how often
    "all every many half third quarter once twice hourly daily weekly monthly yearly annually always never seldom "
    "rarely often forever indefinitely"
)
COUNT = re.compile(
    r"(?<![\w.,:/#@+-])\d{1,3}(?:[ ,]\d{3})+(?![\w.,:/-]*\w)|(?<![\w.:/#@+-])\d+(?:\.\d+)?(?![\w.:/-]*\w)"
)
COUNT_IN_RANGE = re.compile(r"(?<![\w.:/#@-])\d+(?:-|–)\d+(?![\w.:/-])")
BEHIND_NAME = re.compile(r"([^\W\d_a-z][\w.&-]*)\s$")  # "RFC 2822"
MONTH = (
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December"
    r"|(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\b\.?)"
)
BEHIND_MONTH = re.compile(rf"\b{MONTH} (?:\d+, )?$")
BEFORE_MONTH = re.compile(rf"(?:st|nd|rd|th)? (?:of )?{MONTH}\b")
BEHIND_TIME = re.compile(r"\b(?:in|since|until|till|from|after|before|during) $", re.IGNORECASE)
MAX_LEAD_CHARACTERS = 40  # before a number that tell whether it counts
YEAR = re.compile(r"1[5-9]\d\d|20\d\d")
PLAIN_WORDS = AMOUNTS | _words(
    "about around nearly exactly roughly almost over under only some up at least most the these those a an of in on "
    "to for from by with and or is are was were it this that there they we you has have had can may i"
)


def counts_in(text: str, start: int = 0, end: int | None = None) -> list[str]:
    """Return the numbers in a stretch of a text that count something: digits of identifiers, versions, models, dates
    and times do not."""
    counts = COUNT_IN_RANGE.findall(text[start:end])
    for number in COUNT.finditer(text):
        if number.start() < start or (end is not None and number.end() > end):
            continue
        before, after = (
            text[max(0, number.start() - MAX_LEAD_CHARACTERS) : number.start()],
            text[number.end() :],
        )
        name = BEHIND_NAME.search(before)
        is_model = name is not None and name[1].lower() not in PLAIN_WORDS
        is_day = bool(BEHIND_MONTH.search(before) or BEFORE_MONTH.match(after))
        is_year = bool(YEAR.fullmatch(number[0]) and BEHIND_TIME.search(before))
        if not (is_model or is_day or is_year):
            counts.append(number[0])
    return counts


def counts_nothing(question: str, text: str, start: int = 0, end: int | None = None) -> bool:
    """Return whether the question asks how many there are, and an answer in a stretch of the text has no count."""
    if not HOW_MANY.search(question):
        return False
    answer_words = {word.lower() for word in WORD.findall(text[start:end])}
    return not answer_words & (AMOUNTS - NO_COUNT) and not counts_in(text, start, end)


# Content words: what a question is about, without the words that every question has.

CONTENT_WORD = re.compile(r"\w[\w.+/-]*\w|\w")
STEMS = analyzer("english")
_FUNCTION_WORDS = """
a an the of in on at to for from by with and or am is are was were be been do does did can could will would should has
have had may might must i my me we our you your it its this that these those there what which who whom whose when where
why how many much long often if not no as so than then
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())

# Words that people use for each other when they ask, and forms of irregular verbs, one group a line.
_SYNONYMS = """
fund funded sponsor sponsored finance financed
work works support supports compatible
store stored keep kept
swim bathe
visitor visitors guest guests
child children kid kids
repair mend fix
begin start
end finish
buy purchase bought
publish published release released
rent hire lease
remove delete
photo photograph picture image
phone telephone
bike bicycle
fee charge
shut close closed
rubbish garbage trash
lift elevator
flat apartment
toilet restroom
car automobile
machine computer system
try experiment
help assist
show display shown
pay paid
build built
write wrote written
run ran
hold held
lead led
sell sold
send sent
lend lent
teach taught
find found
make made
give gave given
break broke broken damage harm
choose chose chosen
wear wore worn
leave left
lose lost
"""
SYNONYMS = {
    stem: min(STEMS(line)) for line in _SYNONYMS.strip().split("\n") for stem in STEMS(line)
}  # stem to the one that stands for its group


def content_stems(question: str) -> set[str]:
    telling = (word for word in CONTENT_WORD.findall(question) if word.lower() not in FUNCTION_WORDS)
    return {stem for word in telling for stem in STEMS(word)}


def meaning_stems(text: str) -> frozenset[str]:
    """Return the stems of a text's content words, one for all of a group of SYNONYMS."""
    return frozenset(SYNONYMS.get(stem, stem) for stem in content_stems(text))


def share_of(question_stems: Set[str], text: str, otherwise: float = 0.0) -> float:
    """Return the share of the question's stems in the text, in [0, 1]; `otherwise` if it has none."""
    return len(question_stems & set(STEMS(text))) / len(question_stems) if question_stems else otherwise
