"""Entries of manuals: the option, command or setting that a question describes, or the one that it asks about.

An entry is a term with its explanation: the line "-B, --backup: Back up the previous version", or a passage whose
heading is the term. The reader learned from prose and does not answer "Which option makes a backup?" with a term that
stands before its explanation, so the entry is found by comparing the explanations with the question.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kcard import cache as kcard_cache
from kcard.embedded.question_forms import FUNCTION_WORDS, WORD, Form, meaning_stems, share_of
from kcard.embedded.reader import rank_all
from kcard.llms.extraction.clauses import telling_stems
from kcard.llms.extraction.tables import OPTION_NOUNS, Cell, TableRow
from kcard.text import LIST_MARK

TERM_ASKED = re.compile(
    r"\b(?:which|what(?: is|'s)?)(?: the| single)?(?: [\w-]+){0,2}? "
    r"(option|flag|switch|argument|parameter|command|subcommand|setting|variable|function|method|directive|keyword"
    r"|field|attribute|property)\b",
    re.IGNORECASE,
)
TASK = re.compile(r"^how (?:(?:do|can|could|should|would|does) (?:i|we|you|one)|to)\b", re.IGNORECASE)
# "TERM: explanation", "TERM:" above it, "--term   explanation", "-t --term Explanation".
ENTRY_LINE = re.compile(
    r"(?P<label>\S[^:\n]*?):(?:\s+(?P<labelled>\S.*))?|(?P<column>\S+(?: \S+)?) {2,}(?P<spaced>\S.*)"
    r"|(?P<options>--?\w[\w-]*(?:[ =][^\s=]+){0,4}?) (?P<running>[A-Z][a-z].*)"
)
FIRST_SENTENCE = re.compile(r"\A(.*?(?:[.;](?=\s)|\Z)).*", re.DOTALL)
ALIAS = re.compile(r"\(alias: [\w-]+\)")  # of a command, above its explanation
CONTINUED = " " * 8  # begins a line that goes on with the explanation above it, as in the help of commands
OR = re.compile(r",\s*|\s+or\s+|\s*[|/]\s*(?=-)")  # between the names of a term
NAME_END = re.compile(r"[\s=\[<(]")
# Words of a question for the meaning of a term.
_MEANING_WORDS = """
explain describe define mean means meaning purpose stand stands use used what's
option flag switch command key setting argument parameter variable function
"""
MEANING_WORDS = FUNCTION_WORDS | frozenset(_MEANING_WORDS.split())
MEANING = re.compile(r"\W*(?:what(?:'s| is| are| do| does)|explain|describe|define)\b", re.IGNORECASE)
BRACKETED = re.compile(r"\[[^\]]*\]|\([^)]*\)|<[^>]*>")
# A heading that is a term: "-v, --view", "kill-server", "mouse [on | off]", "open(path)", "$HOME", "~/.nanorc".
TERM_TITLE = re.compile(r"-|[a-z]\w*(?:-\w+)+|[^\W\d]\w*[_$=(\[]|[^\W\d]\S* [\[<]|[$@%/.]\w|~/")
MAX_TERM_WORDS = 6
MAX_SHORT_NAME = 2  # characters, such as "-x"
MAX_EXPLANATION = 200  # characters that are compared
COMMAND_NOUNS = frozenset(("command", "subcommand", "function", "method", "directive"))
CAPITALISED_PHRASE = re.compile(r"[A-Z][a-z]+ \w")
VARIABLE = re.compile(r"\$|\b[A-Z][A-Z0-9_]{2,}\b")
CODE = re.compile(r"(?:[$#%]|>>>|\.\.\.) |(?:def|class|for|while|if|elif|else|try|with|return|import|from)\b")
REMARK = re.compile(r"(?:note|warning|example|see also|e\.g|default|caution|tip|important)\b", re.IGNORECASE)
# Words by which a term switches something off.
OFF = re.compile(
    r"(?<![a-z])(?:no|not|never|without|off|disabl\w+|exclud\w+|suppress\w*|prevent\w*|ignor\w+|hid(?:e|es|ing)"
    r"|omit\w*|skip\w*|forbid\w*|\w+n't|turn off)(?![a-z])",
    re.IGNORECASE,
)
# Weights of what tells whether an entry is asked for, and the sums from which it is the answer.
RANK_WEIGHT, MEANING_WEIGHT, WORDS_WEIGHT = 0.25, 3.0, 2.0
NAME_WEIGHT, OTHER_SIGN_COST, NO_OPTION_COST = 1.5, 1.0, 0.5
OTHER_WORD_COST = 0.5  # of a word in a name that the question lacks; it counts between entries alone
MIN_SCORE, SURE_SCORE = 4.6, 5.5
PROBABILITY, SURE_PROBABILITY = 0.8, 0.9

# Default values, and how manuals state them: "[default: 8000]", "Defaults to 30 seconds".
BY_DEFAULT = re.compile(r"\b(?:by )?default(?:s|ed)?(?: value| setting)?(?: of| for)?\b", re.IGNORECASE)
DEFAULT_VALUES = (
    re.compile(r"[\[(]defaults?(?::| is| to|) ?([^\]);]+)[\]);]", re.IGNORECASE),
    re.compile(
        r"\bdefaults?(?: \w+){0,2}?(?: is| are| to|:) (.+?)(?:[.;)](?=\s|$)|, (?!or\b)|$)", re.IGNORECASE
    ),
    re.compile(r"(\S+) \(default\)", re.IGNORECASE),
)
QUOTES = "`'‘’"
MAX_DEFAULT_WORDS = 12
MAX_OTHER_WORDS = 1  # of a name, such as "master" of "--master-port", that the question lacks


@dataclass(frozen=True)
class ManualEntry:
    """A term with its explanation; `line`: what to quote; `passage`: the number of the passage that has it."""

    term: str
    explanation: str
    line: str
    passage: int

    @property
    def quotation(self) -> str:
        if self.line.startswith(self.term):
            return self.line
        return f"{self.term}: {self.line}"


def find_entry(question: str, form: Form, passages: Sequence[tuple[str, str]]) -> Cell | None:
    """Return the entry that answers a question: the term of the option, command or setting that it describes, or, for
    a task ("How do I limit the speed?") or a term ("What does --rate do?"), the term with its explanation. None if
    the question asks for something else, or if no entry is near enough.

    passages  (heading, text) of each, the likeliest first
    """
    if form not in ("what", "how"):
        return None
    entries: list[ManualEntry] = []
    for number, (heading, text) in enumerate(passages):
        entries += entries_of(heading, text, number)
    return _explained(question, entries, passages) or _described(question, form, entries)


def _explained(
    question: str, entries: Sequence[ManualEntry], passages: Sequence[tuple[str, str]]
) -> Cell | None:
    """Return the explanation of the term that a question names, and asks for nothing else."""
    words = [word.strip("`'\".,:;?!") for word in question.split()]
    words = [word for word in words if word.lower() not in MEANING_WORDS]
    term = " ".join(words)
    named = [entry for entry in entries if term in names_of(entry.term)]
    if not named and MEANING.match(question):
        # Beside the term, the question may name a value, or the program: "What does --kind both do?", "git log".
        for entry in entries:
            name = next((word for word in words if word in names_of(entry.term)), "")
            others = WORD.findall(" ".join(word for word in words if word != name))
            heading, _ = passages[entry.passage]
            if name and {*others} <= {*WORD.findall(f"{heading} {entry.term} {entry.line}")}:
                named.append(entry)
                term = name
    if not named:
        return None
    # What explains a term rarely names it; later passages under its heading do.
    entry = next((entry for entry in named if term not in entry.explanation), named[0])
    return Cell(entry.quotation, _row(entry), PROBABILITY, in_words=False)


def _described(question: str, form: Form, entries: Sequence[ManualEntry]) -> Cell | None:
    """Return the entry that fits the description in a question for an option, a command or a setting, or of a task."""
    task = TASK.search(question)
    match = task if form == "how" else TERM_ASKED.search(question)
    if match is None:
        return None
    noun = "option" if task else match[1].lower()
    entries = [
        entry
        for entry in entries
        if is_of_kind(noun, entry.term) and (not task or TERM_TITLE.match(entry.term))
    ]
    if not entries:
        return None
    description = f"{question[: match.start()]}{question[match.end() :]}".strip(" ?")
    scores = score_entries(question, description, noun, entries)
    least = SURE_SCORE if task else MIN_SCORE
    near = [at for at, score in enumerate(scores) if score >= least]
    if not near:
        return None
    # Of entries that fit, the one whose name says no more: "--select" rather than "--extend-select".
    stems = meaning_stems(description)
    best = max(near, key=lambda at: scores[at] - OTHER_WORD_COST * compare_names(stems, entries[at].term)[1])
    entry = entries[best]
    if task:
        return Cell(entry.quotation, _row(entry), PROBABILITY, entry.term, in_words=False)
    probability = SURE_PROBABILITY if scores[best] >= SURE_SCORE else PROBABILITY
    return Cell(entry.term, _row(entry), probability, entry.term)


def _row(entry: ManualEntry) -> TableRow:
    return TableRow(entry.line, entry.term, {}, (), entry.passage)


def names_of(term: str) -> tuple[str, ...]:
    """Return the names in a term without their values: "-r" and "--rate" of "-r N, --rate=N"."""
    names: dict[str, None] = {}
    for part in OR.split(term):
        names |= {part: None, NAME_END.split(part, maxsplit=1)[0]: None}
    names.pop("", None)
    return tuple(names)


def compare_names(stems: frozenset[str], term: str) -> tuple[int, int]:
    """Return how many words of the nearest long name in a term are among these stems, and how many are not."""
    counts = []
    for name in names_of(term):
        if len(name) > MAX_SHORT_NAME and not NAME_END.search(name):
            words = meaning_stems(" ".join(WORD.findall(name)))
            counts.append((len(words & stems), len(words - stems)))
    return max(counts, key=lambda count: (count[0], -count[1]), default=(0, 0))


def entries_of(heading: str, text: str, passage: int) -> list[ManualEntry]:
    """Return the entries of a passage: its lines that begin with a term, each with the indented lines behind it, and
    the whole if its heading is one."""
    entries: list[ManualEntry] = []
    lines: list[str] = []
    for line in text.split("\n"):
        plain = LIST_MARK.sub("", line.strip())
        if lines and line.startswith(CONTINUED) and not plain.startswith("-"):
            lines[-1] += f" {plain}"
        else:
            lines.append(plain)
    for number, line in enumerate(lines):
        match = ENTRY_LINE.fullmatch(line)
        if match is None or CODE.match(line):
            continue
        term = match["label"] or match["column"] or match["options"]
        explanation = match["labelled"] or match["spaced"] or match["running"] or ""
        if not explanation:
            explanation = " ".join(lines[number + 1 : number + 3])
            line = f"{line} {explanation}"
        if "; " in term:  # the row of a table
            term, explanation = line.split("; ", 1)
        is_short = len(BRACKETED.sub("", term).split()) <= MAX_TERM_WORDS
        if is_short and explanation and not REMARK.match(term):
            entries.append(ManualEntry(term, explanation, line, passage))
    title = term_of(heading)
    if title:
        first = 0
        while ALIAS.fullmatch(lines[first]) and first + 1 < len(lines):
            first += 1
        entries.append(ManualEntry(title, " ".join(lines[first:]), lines[first], passage))
    return entries


def term_of(heading: str) -> str:
    """Return the term that the last part of a passage's heading is, such as "-v, --view"; "" if it is a title."""
    title = heading.removesuffix(": ").rpartition(" > ")[2]
    if TERM_TITLE.match(title):
        return title
    return ""


def is_of_kind(noun: str, term: str) -> bool:
    """Return whether a term may be what the noun of a question names: "-f" is no command, "Enables input" no option,
    and only "$HOME" or "HOME" is a variable."""
    if noun == "variable":
        return bool(VARIABLE.search(term))
    if noun in COMMAND_NOUNS and term.startswith("-"):
        return False
    return noun not in OPTION_NOUNS | COMMAND_NOUNS or not CAPITALISED_PHRASE.match(term)


def score_entries(question: str, description: str, noun: str, entries: Sequence[ManualEntry]) -> list[float]:
    """Score how likely each entry is the one that the question describes.

    It counts what the ranker says, how near the entry's term and first sentence are to the description, how many of its
    words they share, and whether both switch something off.
    """
    names, openings = [], []
    for entry in entries:
        names.append(" ".join(WORD.findall(entry.term)))
        openings.append(FIRST_SENTENCE.sub(r"\1", entry.explanation[:MAX_EXPLANATION]))
    texts = [f"{name}: {opening}" for name, opening in zip(names, openings, strict=True)]
    ranks = rank_all(
        [(question, f"{entry.term}: {entry.explanation[:MAX_EXPLANATION]}") for entry in entries]
    )
    vectors = kcard_cache.embed([description, *texts])
    stems = meaning_stems(OFF.sub(" ", description))
    is_off = bool(OFF.search(description))
    scores = []
    for number, (entry, text) in enumerate(zip(entries, texts, strict=True)):
        score = RANK_WEIGHT * float(ranks[number]) + MEANING_WEIGHT * float(vectors[0] @ vectors[number + 1])
        score += WORDS_WEIGHT * share_of(stems, text) + NAME_WEIGHT * share_of(stems, names[number])
        if is_off != bool(OFF.search(text)):
            score -= OTHER_SIGN_COST
        if noun in OPTION_NOUNS and not entry.term.startswith("-"):
            score -= NO_OPTION_COST
        scores.append(score)
    return scores


def find_default(question: str, form: Form, passages: Sequence[tuple[str, str]]) -> Cell | None:
    """Return the default value that a question asks for, of the only entry whose term it names; None if no entry has
    all of its words, or if entries as near have other values.

    passages  (heading, text) of each, the likeliest first
    """
    if form in ("why", "yes/no", "how") or not BY_DEFAULT.search(question):
        return None
    subject = telling_stems(BY_DEFAULT.sub(" ", question))
    nearest, defaults = (0, 0, 0), dict[str, Cell]()
    for number, (heading, text) in enumerate(passages):
        title = telling_stems(heading)
        for entry in entries_of(heading, text, number):
            named, others = compare_names(subject, entry.term)
            value = default_of(entry.explanation)
            covered = subject <= title | telling_stems(f"{entry.term} {entry.explanation}")
            if not value or not named or others > MAX_OTHER_WORDS or not covered:
                continue
            nearness = named, -others, -len(title - subject)
            if nearness > nearest or not defaults:
                nearest, defaults = nearness, {}
            if nearness == nearest:
                defaults.setdefault(
                    value, Cell(value, _row(entry), PROBABILITY if others else SURE_PROBABILITY)
                )
    if len(defaults) != 1:
        return None
    return next(iter(defaults.values()))


def default_of(explanation: str) -> str:
    """Return the default value that an explanation states; "" if it states none."""
    for pattern in DEFAULT_VALUES:
        match = pattern.search(explanation)
        if match and len(match[1].split()) <= MAX_DEFAULT_WORDS:
            return match[1].strip(f" {QUOTES}")
    return ""
