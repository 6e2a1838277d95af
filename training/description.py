"""A card's default name and description, read off its corpus."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from kcard.errors import UsageError
from kcard.text import file_title, small_words, split_sentences
from kcard.training.embedded.pseudo_queries import SMALL, bare
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
COMMON_WORDS = SMALL | set(_COMMON_WORDS.split())


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
    if summary := _readme_summary(passages):
        return summary
    in_folder, in_file, conjunction, more = SENTENCES.get(language.partition("-")[0], ("", "", "", ""))
    # The name of a file stands in for the heading that it lacks.
    sections = [passage.section for passage in passages if passage.section != file_title(passage.file)]
    title, headings = title_and_headings(sections)
    titles = titles_of(passages)
    if title and (corpus.is_file() or titles == [title]):
        covered = _enumerate(headings, conjunction)
        return f"{title}: {covered}" if covered else title
    origin = corpus.resolve().name if corpus.is_dir() else corpus.name
    opening = in_folder if corpus.is_dir() else in_file
    if not corpus.is_dir():
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
    beginning = f"{opening} {origin}".strip()
    return f"{beginning}: {_enumerate(items, conjunction)}" if items else beginning


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
        is_whole = sentence.endswith(".") and least <= len(sentence) <= most
        return sentence.removesuffix(".") if is_whole else ""
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
        name = file_title(file)
        title = headings.get(file) or ("" if name.lower() in GENERIC_FILE_NAMES | GENERIC_HEADINGS else name)
        if any(map(str.isalpha, title)):
            titles[title] = None
    return [*titles]


def title_and_headings(sections: Sequence[str]) -> tuple[str, list[str]]:
    """Return the heading above at least half of the passages, "" if there is none, and the most frequent headings on
    the level below it."""
    paths = [[" ".join(part.split()) for part in section.split(" > ")] for section in sections]
    first, count = (
        Counter(path[0] for path in paths if path[0]).most_common(1)[0] if any(sections) else ("", 0)
    )
    title = first if 2 * count >= len(paths) and len(first) <= MAX_HEADING_CHARACTERS else ""
    level = 1 if title else 0
    below = Counter(path[level] for path in paths if len(path) > level and (not title or path[0] == title))
    telling = [
        heading.capitalize() if heading.isupper() and len(heading) > 5 else heading
        for heading, frequency in (
            (CHAPTER.sub("", heading), count) for heading, count in below.most_common()
        )
        # A heading above fewer passages says more of a single text than of the corpus.
        if frequency * 50 >= len(paths)
        and 2 < len(heading) <= MAX_HEADING_CHARACTERS
        and heading.lower() not in GENERIC_HEADINGS
        and any(letter.isalpha() for letter in heading)
    ]
    return title, telling[:MAX_HEADINGS]


def telling_terms(texts: Sequence[str], language: str = "en") -> list[str]:
    """Return the words and word pairs that most passages share, in their most frequent form, at most MAX_TERMS.

    Stop words of the language are left out; of English, also words that are only verbs, adjectives or adverbs.
    """
    seen: Counter[str] = Counter()
    forms: dict[str, Counter[str]] = {}
    # Words that say little; of English more than of other languages.
    common, is_english = small_words(language), language.startswith("en")
    if is_english:
        common = COMMON_WORDS | common
    for text in texts[:: max(1, len(texts) // MAX_SAMPLE_PASSAGES)]:
        # Words of four letters and more that carry meaning, and pairs of such words side by side.
        words = [bare(word).removesuffix("'s").removesuffix("’s") for word in text.split()]
        telling = [
            len(word) > 3 and word.lower() not in common and not word[0].isdigit() and "/" not in word
            for word in words
        ]
        single = [word for word, keep in zip(words, telling, strict=True) if keep]
        pairs = zip(words, words[1:], telling, telling[1:], strict=False)
        double = [f"{a} {b}" for a, b, keep, also in pairs if keep and also]
        by_key = {term.lower(): term for term in single + double}
        seen.update(by_key.keys())
        for key, form in by_key.items():
            forms.setdefault(key, Counter())[form] += 1
    chosen: dict[str, None] = {}
    for key, _ in sorted(seen.items(), key=lambda item: (-item[1] * (1 + item[0].count(" ")), item[0])):
        form = forms[key].most_common(1)[0][0]
        stems = {word.removesuffix("s") for word in key.split()}
        if any(stems & {word.removesuffix("s") for word in other.split()} for other in chosen):
            continue
        if is_english and not _is_name_or_noun(form):
            continue
        chosen[key] = None
        if len(chosen) == MAX_TERMS:
            break
    # "moons" rather than "moon", where the corpus has both.
    plural = {key: f"{key}s" if is_english and f"{key}s" in forms else key for key in chosen}
    return [
        forms[plural[key] if forms[key].most_common(1)[0][0] == key else key].most_common(1)[0][0]
        for key in chosen
    ]


def _is_name_or_noun(term: str) -> bool:
    """Return whether the last word of an English term is a noun, or no word of a dictionary, as names are."""
    from lemminflect import getAllLemmas

    parts = getAllLemmas(term.split()[-1].lower())
    return not parts or "NOUN" in parts or "PROPN" in parts


def _enumerate(terms: Sequence[str], conjunction: str) -> str:
    if not conjunction:
        return ", ".join(terms)
    return f" {conjunction} ".join(filter(None, [", ".join(terms[:-1]), *terms[-1:]]))
