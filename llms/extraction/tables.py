"""Cells of tables: the one that a question asks for, where its row and its column are plain.

A row of a table is a line of a passage: "Flame sensor; Supplier: Tolm Ltd; Price: 31 €". The reader knows prose and may
take the neighbouring row, so the row is found by its words, and the column by its name or the kind of its cells.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kcard.embedded import static_embeddings as static
from kcard.embedded.question_forms import CONTENT_WORD, FUNCTION_WORDS, STEMS, SYNONYMS, Form, fits
from kcard.llms.extraction.clauses import sign_of, telling_stems
from kcard.llms.extraction.times import DAY_WORDS, weekdays
from kcard.text import LIST_MARK, split_sentences

MAX_NAME_WORDS, MAX_LABEL_WORDS, MAX_PAIR_WORDS = 6, 10, 12
OPTION_NOUNS = frozenset(("option", "flag", "switch"))
KIND_ASKED = re.compile(r"\b(?:which|what) (\w+)\b", re.IGNORECASE)
LABELLED_LINE = re.compile(r"(\S[^:\n]{0,40}?)(?::| --| [—–])\s+(\S.*)")  # "tape: Members of this group ..."
MIN_SHARE = 0.5  # of the question's words in such a line
MAX_UNEXPLAINED_WORDS = 2  # words of the question that neither row nor column explain
MIN_NAME_COSINE = (
    0.4  # cosine from which the question's other words mean the name of a column (static embeddings)
)
NAMED_PROBABILITY, KIND_PROBABILITY, MISSING_PROBABILITY = 0.9, 0.75, 0.1  # probability of a cell
DIGIT = re.compile(r"\d")
PLAIN_WORD = re.compile(r"(?:an? |the )?[a-z]+")  # a cell that says of no row which one it is
# Kinds of values, and the words that ask for them.
CONTACTS = (
    (
        re.compile(r"\b(?:phone|telephone|tel|fax|mobile|call)\b", re.IGNORECASE),
        re.compile(r"(?:\d[\s/()-]?){4,}"),
    ),
    (re.compile(r"\be?-?mail\b", re.IGNORECASE), re.compile(r"\S@\S")),
    (re.compile(r"\b(?:website|web|url|homepage)\b", re.IGNORECASE), re.compile(r"https?://|www\.")),
)
KINDS = (
    *CONTACTS,
    (
        re.compile(r"\b(?:cost|costs|price|pay|charge|fee|how much is|how much are)\b", re.IGNORECASE),
        re.compile(
            r"[€$£¥]|\b(?:eur|usd|gbp|chf|euros?|dollars?|pounds?|francs?|cents?|free)\b", re.IGNORECASE
        ),
    ),
    (
        re.compile(r"\bhow long\b", re.IGNORECASE),
        re.compile(r"\d\s*(?:s|sec|min|h|minutes?|hours?|days?|weeks?|months?|years?)\b", re.IGNORECASE),
    ),
    # A name of at least two words.
    (
        re.compile(r"\bwhom?\b", re.IGNORECASE),
        re.compile(r"\A[^\W\d_a-z][\w.'’-]*(?: [\w.'’-]+)* [^\W\d_a-z][\w'’-]+\Z"),
    ),
)
KIND_WORDS = "phone telephone tel fax mobile call number e-mail email mail website web url address"


@dataclass(frozen=True)
class TableRow:
    """A row of a table.

    line     as it stands in the passage
    label    its first cell
    cells    the others, by the names of their columns
    names    the names of all columns of the table, but for the first
    passage  the number of the passage
    """

    line: str
    label: str
    cells: Mapping[str, str]
    names: tuple[str, ...]
    passage: int


@dataclass(frozen=True)
class Cell:
    """A cell as an answer. `text` is empty where the row has none in the column that is asked for.

    probability  that it is the answer, in [0, 1]
    term         the option or command that is the answer, if the row is the entry of a manual
    in_words     whether the answer is a few words rather than the explanation of an entry
    """

    text: str
    row: TableRow
    probability: float
    term: str = ""
    in_words: bool = True


def rows_of(text: str, passage: int) -> list[TableRow]:
    """Return the rows of tables in a passage: lines of cells with names, those of one table after each other."""
    lines: list[tuple[str, str, dict[str, str]]] = []
    for line in text.split("\n"):
        label, *parts = LIST_MARK.sub("", line.strip()).split("; ")
        cells: dict[str, str] = {}
        last = ""
        for part in parts:
            name, colon, value = part.partition(": ")
            if colon and len(name.split()) <= MAX_NAME_WORDS and name not in cells:
                cells[name] = value
                last = name
            elif last:
                cells[last] += f"; {part}"
        if cells and len(label.split()) <= MAX_LABEL_WORDS:
            lines.append((line.strip(), label, cells))
    counts: Counter[str] = Counter()
    for _, _, cells in lines:
        counts.update(cells.keys())
    rows = []
    for line, label, cells in lines:
        # A sentence with a semicolon and a colon is no row.
        if len(cells) > 1 or any(counts[name] > 1 for name in cells):
            names = tuple(cells)
            if len(lines) > 1:
                names = tuple(counts)
            rows.append(TableRow(line, label, cells, names, passage))
    return rows


def pairs_of(text: str, passage: int) -> list[TableRow]:
    """Return the lines of a label and a value, such as "Workshop: 555 0102", as rows with one cell without a name."""
    rows = []
    for line in text.split("\n"):
        label, colon, value = LIST_MARK.sub("", line.strip()).partition(": ")
        is_short = len(label.split()) <= MAX_NAME_WORDS and len(value.split()) <= MAX_PAIR_WORDS
        if colon and value and is_short and "; " not in line:
            rows.append(TableRow(line.strip(), label, {"": value}, ("",), passage))
    return rows


def find_cell(question: str, form: Form, passages: Sequence[tuple[str, str]]) -> Cell | None:
    """Return the cell that a question asks for; None if no table has its row, or if row or column are in doubt.

    passages  (heading, text) of each, the likeliest first
    """
    asks_contact = any(words.search(question) for words, _ in CONTACTS)
    if form in ("why", "yes/no") or (form == "how" and not asks_contact):
        return None
    rows: list[TableRow] = []
    pairs: list[TableRow] = []
    for number, (_, text) in enumerate(passages):
        rows += rows_of(text, number)
        pairs += pairs_of(text, number)
    row = best_row(question, rows)
    if row is not None:
        return _cell_of(question, form, row, passages[row.passage][0])
    return _value_of(question, pairs) or _label_of(question, passages)


def stems_of(text: str) -> frozenset[str]:
    """Return the stems of a text's content words; words with digits stay as they are, and days are left out."""
    stems = set[str]()
    for word in CONTENT_WORD.findall(DAY_WORDS.sub(" ", text)):
        if DIGIT.search(word):
            stems.add(word.lower())
        elif word.lower() not in FUNCTION_WORDS and len(word) > 1:
            stems.update(SYNONYMS.get(stem, stem) for stem in STEMS(word))
    return frozenset(stems)


def is_same_root(one: str, other: str) -> bool:
    """Return whether two stems are of one root, such as "suppli" and "supplier"."""
    common = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        common += 1
    shorter, longer = sorted((len(one), len(other)))
    return one == other or (common >= 4 and common >= shorter - 1 and common >= longer - 3)


def best_row(question: str, rows: Sequence[TableRow]) -> TableRow | None:
    """Return the row with the most words of the question, in whole cells; None if no row has any, or two have as many.

    Of rows with as many, one whose label is whole goes before others; a label counts also in part, if no other row's
    has that part.
    """
    question_stems = stems_of(question)
    highest = (0, False, 0)
    best: list[TableRow] = []
    for row in rows:
        label = stems_of(row.label)
        whole = set[str]()
        for name in key_columns(question_stems, row):
            whole |= stems_of(row.cells[name])
        part: frozenset[str] = frozenset()
        is_whole = bool(label) and label <= question_stems
        if is_whole:
            whole |= label
        else:
            part = label & question_stems
            for other in rows:
                if part and other.label != row.label:
                    part -= stems_of(other.label)
        score = len(whole), is_whole, len(part)
        if not whole and not part:
            continue
        if score > highest:
            highest, best = score, []
        if score == highest:
            best.append(row)
    if not best or any((row.label, row.cells) != (best[0].label, best[0].cells) for row in best):
        return None
    return best[0]


def key_columns(question_stems: frozenset[str], row: TableRow) -> list[str]:
    """Return the columns whose cell stands in the question, a mere number only with the column's name."""
    columns = []
    for name, cell in row.cells.items():
        stems = stems_of(cell)
        if not stems or not stems <= question_stems:
            continue
        has_word = any(stem.isalpha() and len(stem) > 2 for stem in stems)
        if has_word or shared_roots(stems_of(name), question_stems):
            columns.append(name)
    return columns


def shared_roots(stems: frozenset[str], others: frozenset[str]) -> frozenset[str]:
    """Return those of `stems` that have the root of one of the others."""
    shared = set[str]()
    for stem in stems:
        if any(is_same_root(stem, other) for other in others):
            shared.add(stem)
    return frozenset(shared)


def _cell_of(question: str, form: Form, row: TableRow, heading: str) -> Cell | None:
    """Return the row's cell in the column that the question asks for."""
    question_stems, days = stems_of(question), weekdays(question)
    keys = key_columns(question_stems, row)
    label = stems_of(row.label)
    rest = question_stems - label
    for name in keys:
        rest -= stems_of(row.cells[name])
    # Days of the week: in a column's name, or in a cell.
    names = [name for name in row.names if name not in keys]
    with_days = [name for name in names if weekdays(name)]
    if days and with_days:
        names = [name for name in with_days if days <= weekdays(name)]
        if not names:
            return Cell("", row, MISSING_PROBABILITY)
    elif days and not any(days <= weekdays(cell) for cell in row.cells.values()):
        return None
    is_by_day = bool(days and with_days)
    column, probability = _asked_column(question, rest, names, row, is_by_day=is_by_day)
    left_over = rest - shared_roots(rest, stems_of(heading))
    for name in row.names:
        left_over -= shared_roots(rest, stems_of(name))
    if len(left_over) > MAX_UNEXPLAINED_WORDS or any(_is_specific(question, stem) for stem in left_over):
        return None
    if column is None:
        # The question has a cell, and asks for the row.
        asks_for_row = (
            bool(keys and rest) and not label <= question_stems and form in ("who", "what", "where")
        )
        if asks_for_row and fits(form, row.label):
            return Cell(row.label, row, KIND_PROBABILITY)
        return None
    if column not in row.cells:
        return Cell("", row, MISSING_PROBABILITY)
    if not is_by_day and not fits(form, row.cells[column]):
        return None
    # Where nothing but a plain word such as "a card" points to this row, the question may speak of all rows.
    plain = [row.cells[name] for name in keys if PLAIN_WORD.fullmatch(row.cells[name])]
    if plain and len(plain) == len(keys) and label & question_stems <= stems_of(" ".join(plain)):
        return None
    if not label <= question_stems and not keys:
        probability = min(probability, KIND_PROBABILITY)
    return Cell(row.cells[column], row, probability)


def _asked_column(
    question: str, rest: frozenset[str], names: Sequence[str], row: TableRow, *, is_by_day: bool
) -> tuple[str | None, float]:
    """Return the column that the question asks for, by its name or by the kind of its cells, and how likely it is."""
    if is_by_day and len(names) == 1:
        return names[0], NAMED_PROBABILITY
    # By name: its words in the question.
    shares = {}
    for name in names:
        stems = stems_of(name)
        shared = shared_roots(stems, rest)
        if shared:
            shares[name] = (len(shared), len(shared) / len(stems))
    if shares:
        most = max(shares.values())
        best = [name for name in names if shares.get(name) == most]
        if len(best) != 1:
            return None, 0.0
        return best[0], NAMED_PROBABILITY
    # By kind: the only column with such cells.
    for pattern, kind in KINDS:
        if pattern.search(question):
            of_kind = [name for name in names if kind.search(row.cells.get(name, ""))]
            if len(of_kind) == 1:
                return of_kind[0], KIND_PROBABILITY
            names = of_kind
            break
    # By meaning.
    words = " ".join(word for word in CONTENT_WORD.findall(question) if stems_of(word) & rest)
    if words and names:
        vectors = static.embed([words, *names])
        likeness = [float(vectors[0] @ vector) for vector in vectors[1:]]
        highest = max(likeness)
        if highest >= MIN_NAME_COSINE:
            return names[likeness.index(highest)], KIND_PROBABILITY
    return None, 0.0


def _is_specific(question: str, stem: str) -> bool:
    """Return whether a stem of the question is of a number or, after its first word, of a name."""
    if DIGIT.search(stem):
        return True
    words = CONTENT_WORD.findall(question)[1:]
    return any(word[0].isupper() and stem in STEMS(word) for word in words)


def _value_of(question: str, pairs: Sequence[TableRow]) -> Cell | None:
    """Return the value of the only label in the question, if this asks for nothing else but the kind of the value."""
    kind = next((values for words, values in KINDS if words.search(question)), None)
    if kind is None:
        return None
    question_stems = stems_of(question)
    asked_kind = frozenset(STEMS(KIND_WORDS))
    cells: dict[str, Cell] = {}
    for row in pairs:
        label, value = stems_of(row.label), row.cells[""]
        asks_for_label = bool(label) and label <= question_stems and question_stems <= label | asked_kind
        if asks_for_label and kind.search(value):
            cells.setdefault(value, Cell(value, row, NAMED_PROBABILITY))
    if len(cells) != 1:
        return None
    return next(iter(cells.values()))


def _label_of(question: str, passages: Sequence[tuple[str, str]]) -> Cell | None:
    """Return the label of the line that says of "this group" what the question asks of a group: of "tape: Members of
    this group may use the tape drive", also where the label is the heading.

    None if two lines say as much of it, and for options: a manual says "this option" of each.
    """
    noun = KIND_ASKED.search(question)
    if noun is None or noun[1].lower() in OPTION_NOUNS | FUNCTION_WORDS:
        return None
    own = re.compile(rf"\bthis {re.escape(noun[1])}\b", re.IGNORECASE)
    subject = telling_stems(question) - telling_stems(noun[1])
    labelled: list[tuple[int, TableRow]] = []
    for number, (heading, text) in enumerate(passages):
        title = heading.removesuffix(": ").rpartition(" > ")[2]
        for at, line in enumerate(text.split("\n")):
            label, value = "", line
            match = LABELLED_LINE.match(LIST_MARK.sub("", line.strip()))
            if match:
                label, value = match[1], match[2]
            elif at == 0:
                label = title
            sentences = [sentence for sentence in split_sentences(value) if own.search(sentence)]
            saying = " ".join(sentences)
            if not label or telling_stems(label) == telling_stems(noun[1]) or not saying:
                continue
            shared = subject & (telling_stems(label) | telling_stems(saying))
            if shared and sign_of(saying) == sign_of(question):
                labelled.append((len(shared), TableRow(line.strip(), label, {}, (), number)))
    most = max((count for count, _ in labelled), default=0)
    best = [row for count, row in labelled if count == most]
    if len(best) != 1 or most < MIN_SHARE * len(subject):
        return None
    return Cell(best[0].label, best[0], KIND_PROBABILITY)
