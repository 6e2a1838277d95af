"""Triples of subject, relation and object, and the sentences that express them.

A file `templates.tsv` next to the triples adds templates or overrides ours: relation<TAB>sentence, with {subject} and
{object} in it.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from urllib.parse import unquote

from kcard.errors import CorpusError
from kcard.training.readers import tables
from kcard.training.readers.files import TEMPLATE_FILE, Block, Document, leads_out
from kcard.training.readers.text import lines

# Common relations: a template for each, aliases, and Wikidata's property numbers.

_TABLES = tomllib.loads(Path(__file__).with_name("relations.toml").read_text(encoding="utf-8"))
TEMPLATES: Mapping[str, str] = _TABLES["templates"]
ALIASES: dict[str, str] = {}
for _label, _aliases in _TABLES["aliases"].items():
    ALIASES |= dict.fromkeys(_aliases, _label)
PROPERTIES: Mapping[str, str] = _TABLES["properties"]


Triple = tuple[str, str, str]

HEADERS = (
    {"subject", "subj", "s", "head", "h", "entity", "source"},
    {"relation", "rel", "r", "predicate", "p", "property", "attribute"},
    {"object", "obj", "o", "tail", "t", "value", "target"},
)
FALLBACK = "The {relation} of {subject} is {object}."
VERB = re.compile(
    r"(?:is|was|are|were|has|have|had|can|did|does|won|wrote|became) .*"
    r"|\w+s (?:in|at|by|to|from|for|with|through|into|on|over|near|under)"
)
PARTICIPLE = re.compile(
    r"(?:\w+(?:ed|en|wn|ght)|made|born|set|held|led|found|run|sung|spoken) (?:by|in|at|on|from|to|for|with|near)"
)
LITERAL = re.compile(r'"(.*)"(?:@[\w-]+|\^\^[^\s"]+)?', re.DOTALL)
MIDNIGHT = re.compile(r"\+?(\d{4}-\d\d-\d\d)T00:00:00Z")
WORD_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_\s]+")


def read(document: Document) -> Iterator[Block]:
    """Read each triple as a sentence. A file with another number of columns, or with a chosen column, is read as a
    table."""
    if not _is_graph(document):
        yield from tables.read_delimited(document)
        return
    beside = document.path.with_name(TEMPLATE_FILE)
    if leads_out(beside, beside.parent.resolve()):
        raise CorpusError(f"{beside} is a link that leads out of its folder: put the templates there")
    templates = {**TEMPLATES, **read_templates(beside)}
    for number, cells in _rows(document):
        yield document.statement(to_sentence(*cells, templates=templates), number)


def triples(document: Document) -> Iterator[tuple[int, Triple]]:
    """Yield the triples, by line, as people write them; none if the file is read as a table."""
    return _rows(document) if _is_graph(document) else iter(())


def _is_graph(document: Document) -> bool:
    if document.column is not None:
        return False
    first = [line.split("\t") for _, line in islice(lines(document.path, whole=True), 2)]
    if {len(row) for row in first} != {3}:
        return False
    return not any(cell.strip().lower() in tables.NAMES for cell in first[0])


def _rows(document: Document) -> Iterator[tuple[int, Triple]]:
    for number, line in lines(document.path, whole=True):
        cells = [plain_cell(cell) for cell in line.split("\t")]
        is_triple = len(cells) == 3
        if number == 1 and is_header(cells):
            continue
        if is_triple and all(cells):
            yield number, (cells[0], cells[1], cells[2])
        elif line.strip():
            tables.count_broken(document, f"line {number} is not a triple")


def is_header(cells: Sequence[str]) -> bool:
    """Return whether the first row of triples names the columns."""
    if len(cells) != len(HEADERS):
        return False
    return all(cell.lower() in names for cell, names in zip(cells, HEADERS, strict=True))


def to_sentence(subject: str, relation: str, value: str, *, templates: Mapping[str, str] = TEMPLATES) -> str:
    """Express the triple as a sentence: by the relation's template, else by the form of its name."""
    label = label_of(relation)
    template = templates.get(label)
    if not template and VERB.fullmatch(label):
        template = "{subject} {relation} {object}."
    elif not template and PARTICIPLE.fullmatch(label):
        template = "{subject} was {relation} {object}."
    template = template or FALLBACK
    # Prepositions and articles that fit the object.
    if re.fullmatch(r"\d{3,4}", value):
        template = template.replace(" on {object}", " in {object}")
    elif re.fullmatch(r"\d{4}-\d\d-\d\d", value):
        template = template.replace(" in {object}", " on {object}")
    if value[:1] in "aeioAEIO":
        template = template.replace(" a {object}", " an {object}")
    cells = {"subject": subject, "relation": label, "object": value}
    sentence = re.sub(r"\{(subject|relation|object)\}", lambda match: cells[match[1]], template)
    sentence = re.sub(r"\.{2}$", ".", sentence)
    if template.startswith("{relation}"):
        sentence = sentence[:1].upper() + sentence[1:]
    return sentence


def label_of(relation: str) -> str:
    """Return a relation as words: "wdt:P19", "placeOfBirth" and ".../ontology/birthPlace" are "place of birth"."""
    name = re.split(r"[/#:]", relation.rstrip("/"))[-1]
    label = PROPERTIES.get(name) or " ".join(WORD_BORDER.sub(" ", name).lower().split())
    return ALIASES.get(label, label)


def plain_cell(cell: str) -> str:
    """Return a cell as people write it: without quotes and types of literals, addresses and underscores."""
    cell = cell.strip()
    for form in (LITERAL, MIDNIGHT):
        match = form.fullmatch(cell)
        if match is not None:
            return match[1]
    if re.match(r"<?https?://", cell):
        cell = unquote(re.split(r"[/#]", cell.strip("<>").rstrip("/"))[-1])
    if " " not in cell:
        cell = cell.replace("_", " ").strip()
    return cell


def read_templates(path: Path) -> dict[str, str]:
    templates: dict[str, str] = {}
    if not path.is_file():
        return templates
    for number, line in lines(path):
        if line.strip():
            relation, _, sentence = line.strip().partition("\t")
            if not ("{subject}" in sentence and "{object}" in sentence):
                raise CorpusError(
                    f"{path}:{number} is not a template: expected relation, tab, a sentence with "
                    "{subject} and {object}"
                )
            templates[label_of(relation)] = sentence.strip()
    return templates
