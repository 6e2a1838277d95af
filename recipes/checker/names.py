"""Invented people, places, teams and works: random combinations of common given names, surnames and syllables."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from random import Random


def words(name: str) -> list[str]:
    """One list of words.toml."""
    return [" ".join(word.split()) for word in WORDS[name].split(",")]


WORDS = tomllib.loads((Path(__file__).parent / "words.toml").read_text(encoding="utf-8"))
FIRST_NAMES, SURNAMES, PLACES = words("given"), words("surnames"), words("places")
HEADS, MIDDLES, TAILS, TEAM = words("heads"), words("middles"), words("tails"), words("team")
ADJECTIVES, NOUNS, SUBJECTS = words("adjectives"), words("nouns"), words("subjects")
SURNAME_ENDS = ("ck", "ler", "n", "rs", "sky", "tt", "wright", "z")
ONSETS = (
    "b",
    "br",
    "c",
    "ch",
    "d",
    "f",
    "g",
    "gr",
    "h",
    "j",
    "k",
    "l",
    "m",
    "n",
    "p",
    "r",
    "s",
    "sh",
    "st",
    "t",
    "v",
    "w",
)
VOWELS = ("a", "ai", "e", "ee", "i", "o", "oo", "u")
CODAS = ("ck", "ld", "m", "nd", "ne", "ng", "r", "rt", "ss", "son", "st", "tz", "w", "x")
COMPANY_ENDS = ("tec", "corp", "soft", "gen", "lux", "nova")
ORDINALS = ("st", "nd", "rd")


def _ordinal(number: int) -> str:
    last = number % 10
    suffix = ORDINALS[last - 1] if 1 <= last <= 3 and not 11 <= number % 100 <= 13 else "th"
    return f"{number}{suffix}"


def _person(rng: Random) -> str:
    middle = rng.random()
    first = rng.choice(FIRST_NAMES)
    if middle < 0.1:
        first += f" {rng.choice('ABCDEFGHJKLMNPRSTW')}."
    elif middle < 0.15:
        first += f" {rng.choice(FIRST_NAMES)}"
    surname = rng.choice(SURNAMES)
    choice = rng.random()
    if choice < 0.25:
        surname = rng.choice(HEADS) + rng.choice(MIDDLES) + rng.choice(SURNAME_ENDS)
    elif choice < 0.45:
        surname = "".join(rng.choice(ONSETS) + rng.choice(VOWELS) for _ in range(rng.randint(1, 2)))
        surname = surname.title() + rng.choice(CODAS)
    return f"{first} {surname}"


def _town(rng: Random) -> str:
    return rng.choice(HEADS) + rng.choice((*MIDDLES, "")) + rng.choice(TAILS)


def _place(rng: Random) -> str:
    return rng.choice(PLACES) if rng.random() < 0.6 else _town(rng)


def _team(rng: Random) -> str:
    return f"{_town(rng)} {rng.choice(TEAM)}"


def _company(rng: Random) -> str:
    return f"{rng.choice(HEADS)}{rng.choice(MIDDLES)}{rng.choice(COMPANY_ENDS)}".title()


def _work(rng: Random) -> str:
    return f"The {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"


def _district(rng: Random) -> str:
    return _ordinal(rng.randint(1, 52)) if rng.random() < 0.95 else "at-large"


def _year(rng: Random) -> str:
    return str(rng.randint(1950, 2026) if rng.random() < 0.7 else rng.randint(1700, 1950))


def _amount(rng: Random) -> str:
    digits = rng.choice((10, 100, 1000, 10_000, 1_000_000))
    return f"{rng.randint(2, 99) * digits // 10 or 2:,}"


KINDS: dict[str, Callable[[Random], str]] = {
    "person": _person,
    "place": _place,
    "town": _town,
    "team": _team,
    "company": _company,
    "work": _work,
    "district": _district,
    "year": _year,
    "amount": _amount,
    "score": lambda rng: f"{rng.randint(1, 9)}-{rng.randint(0, 9)}",
    "prize": lambda rng: f"{rng.choice(SURNAMES)} Prize" + rng.choice(("", f" in {rng.choice(SUBJECTS)}")),
    "office": lambda rng: rng.choice(words("offices")),
    "thing": lambda rng: (
        f"{rng.choice(words('things'))} {_town(rng)[:5]}{rng.choice(('in', 'ol', 'us', 'a'))}"
    ),
    "job": lambda rng: rng.choice(words("jobs")),
    "genre": lambda rng: rng.choice(words("genres")),
    "deed": lambda rng: rng.choice(words("deeds")),
    "match": lambda rng: rng.choice(words("matches")),
    "contest": lambda rng: rng.choice(words("contests")),
    "trial": lambda rng: rng.choice(words("trials")),
    "majority": lambda rng: f"{rng.uniform(50.1, 62):.{rng.choice((0, 1, 1, 2))}f}",
    "minority": lambda rng: f"{rng.uniform(20, 38):.{rng.choice((0, 1, 1, 2))}f}",
    "sport": lambda rng: rng.choice(words("sports")),
    "river": lambda rng: f"{_town(rng)} River",
    "mountain": lambda rng: f"Mount {_town(rng)}",
}


def draw(kind: str, rng: Random) -> str:
    """A value of that kind."""
    return KINDS[kind](rng)


def near(kind: str, value: str, rng: Random) -> str:
    """Another value of that kind, for a false claim: half of the time one that is easy to confuse."""
    other = value
    if rng.random() < 0.5:
        other = _confusable(kind, value, rng)
    while other == value:
        other = draw(kind, rng)
    return other


def _confusable(kind: str, value: str, rng: Random) -> str:
    if kind == "year":
        return str(int(value) + rng.choice((-10, -4, -2, -1, 1, 2, 4, 10)))
    if kind == "district" and value != "at-large":
        return _ordinal(max(1, int(value[:-2]) + rng.choice((-10, -2, -1, 1, 2, 10))))
    if kind == "person":
        first, _, surname = value.rpartition(" ")
        return (
            f"{rng.choice(FIRST_NAMES)} {surname}"
            if rng.random() < 0.5
            else f"{first} {rng.choice(SURNAMES)}"
        )
    if kind == "amount":
        number = int(value.replace(",", ""))
        return f"{max(1, number + rng.choice((-1, 1, number, number // 2 + 1))):,}"
    return value
