"""A card's default name and description, read off its corpus."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from pathlib import Path

from kcard.errors import UsageError
from kcard.text import file_title, small_words, split_sentences
from kcard.training.embedded.pseudo_queries import STOP_WORDS, bare
from kcard.training.passages import GENERIC_FILE_NAMES
from kcard.types import Source

_COMMON_WORDS = """
about above again against almost along already although always among another around because became become being
between both called could different does done down during each early either enough even ever every first found from
full gave general gets give given goes going gone good great half have having held here high hold into itself just
keep kept kind known large last late later least left less like long made main make many might more most much must
near need never next none often once only open other others over part past people perhaps place rather really right
said same second seen several shall should since small some soon still such sure take taken than that their them
then there these thing things third this those though three through time times today together took toward under
until upon used using usually various very want well went were what where whether which while whole whom whose wide
will with within without work would year years your
also below chapter command default description example examples following note overview section synopsis usage
"""
MAX_SAMPLE_PASSAGES = 20_000  # passages, spread over the corpus
COMMON_WORDS = STOP_WORDS | set(_COMMON_WORDS.split())


def name_from(path: Path) -> str:
    """Derive a card's name from the file or folder of its corpus: lower case, invalid characters replaced by '-'."""
    stem = path.resolve().name if path.is_dir() else path.stem
    slug = re.sub(r"[^a-z0-9._]+", "-", stem.lower()).strip("-._")[:96]
    if not slug:
        raise UsageError(f"can't derive a card name from {path.name!r}: give one with name (--name)")
    return slug


# How a description begins, by where the texts come from, and the words around its last item, by language; in others it
# is a list.
SENTENCES = {
    "en": ("Notes from the folder", "Notes from the file", "and", "more"),
    "de": ("Notizen aus dem Ordner", "Notizen aus der Datei", "und", "weitere"),
    "es": ("Notas de la carpeta", "Notas del archivo", "y", "más"),
    "fr": ("Notes du dossier", "Notes du fichier", "et", "autres"),
    "it": ("Appunti dalla cartella", "Appunti dal file", "e", "altri"),
    "nl": ("Notities uit de map", "Notities uit het bestand", "en", "andere"),
    "pt": ("Notas da pasta", "Notas do ficheiro", "e", "outros"),
}
MAX_TERMS, MAX_HEADINGS = 6, 3  # in a description
SUMMARY_CHARACTERS = (20, 200)  # of the first sentence of a README
MAX_HEADING_CHARACTERS = 50  # characters
CHAPTER = re.compile(r"^(?:chapter \d+|\d+(?:\.\d+)+|\d+(?=[.:]))[.:]? ", re.IGNORECASE)  # before a heading
# Headings that every text has, in lower case.
_GENERIC_HEADINGS = """
abstract acknowledgements appendix author authors background bugs conclusion conclusions contents copyright description
discussion examples introduction licence license name notes options overview preface references results summary synopsis
usage
"""
GENERIC_HEADINGS = {*_GENERIC_HEADINGS.split(), "see also", "table of contents"}


def describe(passages: Sequence[Source], corpus: Path, language: str = "en") -> str:
    """Describe a corpus in one sentence, as a person would: by the first sentence of its README; else by its title and
    headings; else by the titles of its texts; else by the names in it."""
    summary = _readme_summary(passages)
    if summary:
        return summary
    in_folder, in_file, conjunction, more = SENTENCES.get(language.partition("-")[0], ("", "", "", ""))
    # The name of a file stands in for the heading that it lacks.
    sections = [passage.section for passage in passages if passage.section != file_title(passage.file)]
    title, headings = title_and_headings(sections)
    titles = titles_of(passages)
    if title and (corpus.is_file() or titles == [title]):
        if not headings:
            return title
        return f"{title}: {_enumerate(headings, conjunction)}"
    if corpus.is_dir():
        opening, origin = in_folder, corpus.resolve().name
    else:
        opening, origin = in_file, corpus.name
        titles = headings
    if not titles:
        is_german = language.startswith("de")  # where every noun has a capital letter
        terms = telling_terms([passage.text for passage in passages], language)
        titles = [term for term in terms if is_german or term[0].isupper()][:MAX_HEADINGS]
    items = titles[:MAX_HEADINGS]
    if len(titles) > MAX_HEADINGS + 1 and opening:
        items.append(f"{len(titles) - MAX_HEADINGS} {more}")
    elif len(titles) > MAX_HEADINGS:
        items = titles[: MAX_HEADINGS + 1]
    description = f"{opening} {origin}".strip()
    if items:
        description += f": {_enumerate(items, conjunction)}"
    return description


def _readme_summary(passages: Iterable[Source]) -> str:
    """Return the first sentence of prose of the corpus' README; "" if there is none of a usual length."""
    least, most = SUMMARY_CHARACTERS
    for passage in passages:
        if "/" in passage.file or not re.match(r"readme\b", passage.file, re.IGNORECASE):
            continue
        first_line = passage.text.split("\n")[0]
        sentences = split_sentences(first_line)
        if not sentences or not first_line[0].isalpha():
            return ""
        sentence = " ".join(sentences[0].split())
        if not sentence.endswith(".") or not least <= len(sentence) <= most:
            return ""
        return sentence.removesuffix(".")
    return ""


def titles_of(passages: Iterable[Source]) -> list[str]:
    """Return the titles of a corpus' files, those of the longest ones first: the heading over a file, or its name."""
    lengths: Counter[str] = Counter()
    headings: dict[str, str] = {}
    for passage in passages:
        lengths[passage.file] += len(passage.text)
        heading = CHAPTER.sub("", passage.section.partition(" > ")[0])
        if heading and len(heading) <= MAX_HEADING_CHARACTERS and heading.lower() not in GENERIC_HEADINGS:
            headings.setdefault(passage.file, heading)
    titles: dict[str, None] = {}
    for file, _ in lengths.most_common():
        title = headings.get(file, "")
        if not title:
            title = file_title(file)
            if title.lower() in GENERIC_FILE_NAMES | GENERIC_HEADINGS:
                continue
        if any(map(str.isalpha, title)):
            titles[title] = None
    return list(titles)


def title_and_headings(sections: Sequence[str]) -> tuple[str, list[str]]:
    """Return the heading above at least half of the passages, "" if there is none, and the most frequent headings on
    the level below it."""
    paths = [[" ".join(part.split()) for part in section.split(" > ")] for section in sections]
    firsts = Counter(path[0] for path in paths if path[0])
    title = ""
    for first, count in firsts.most_common(1):
        if 2 * count >= len(paths) and len(first) <= MAX_HEADING_CHARACTERS:
            title = first
    below: Counter[str] = Counter()
    for path in paths:
        if not title:
            below[path[0]] += 1
        elif path[0] == title and len(path) > 1:
            below[path[1]] += 1
    telling: list[str] = []
    for heading, count in below.most_common():
        # A heading above fewer passages says more of a single text than of the corpus.
        if count * 50 < len(paths):
            break
        heading = CHAPTER.sub("", heading)
        if not 2 < len(heading) <= MAX_HEADING_CHARACTERS or heading.lower() in GENERIC_HEADINGS:
            continue
        if heading.isupper() and len(heading) > 5:
            heading = heading.capitalize()
        if any(map(str.isalpha, heading)):
            telling.append(heading)
    return title, telling[:MAX_HEADINGS]


def telling_terms(texts: Sequence[str], language: str = "en") -> list[str]:
    """Return the words and word pairs that most passages share, in their most frequent form, at most MAX_TERMS.

    Stop words of the language are left out; of English, also words that are only verbs, adjectives or adverbs.
    """
    passages: Counter[str] = Counter()  # by term in lower case
    forms: dict[str, Counter[str]] = {}
    # Words that say little; of English more than of other languages.
    common, is_english = small_words(language), language.startswith("en")
    if is_english:
        common = COMMON_WORDS | common
    for text in texts[:: max(1, len(texts) // MAX_SAMPLE_PASSAGES)]:
        by_key = {term.lower(): term for term in _terms_of(text, common)}
        passages.update(by_key.keys())
        for key, form in by_key.items():
            forms.setdefault(key, Counter())[form] += 1
    chosen: dict[str, str] = {}  # terms, by their key
    stems: set[str] = set()
    for key, _ in sorted(passages.items(), key=lambda item: (-item[1] * (1 + item[0].count(" ")), item[0])):
        form = forms[key].most_common(1)[0][0]
        words = {word.removesuffix("s") for word in key.split()}
        if not stems.isdisjoint(words) or (is_english and not _is_name_or_noun(form)):
            continue
        # "moons" rather than "moon", where the corpus has both.
        if is_english and form == key and f"{key}s" in forms:
            form = forms[f"{key}s"].most_common(1)[0][0]
        chosen[key] = form
        stems |= words
        if len(chosen) == MAX_TERMS:
            break
    return list(chosen.values())


def _terms_of(text: str, common: Set[str]) -> list[str]:
    """Return the words of four letters and more that carry meaning, then the pairs of such words side by side."""
    single: list[str] = []
    double: list[str] = []
    before = ""
    for raw in text.split():
        word = bare(raw).removesuffix("'s").removesuffix("’s")
        if len(word) < 4 or word.lower() in common or word[0].isdigit() or "/" in word:
            before = ""
            continue
        single.append(word)
        if before:
            double.append(f"{before} {word}")
        before = word
    return single + double


def _is_name_or_noun(term: str) -> bool:
    """Return whether the last word of an English term is a noun, or no word of a dictionary, as names are."""
    from lemminflect import getAllLemmas

    parts = getAllLemmas(term.split()[-1].lower())
    return not parts or "NOUN" in parts or "PROPN" in parts


def _enumerate(terms: Sequence[str], conjunction: str) -> str:
    if not conjunction:
        return ", ".join(terms)
    if len(terms) < 2:
        return "".join(terms)
    return f"{', '.join(terms[:-1])} {conjunction} {terms[-1]}"
