"""Names and nouns that the training data of the embedded reader is made of: common real ones and invented ones.

`Words` draws a value for a slot kind such as `person` or `year` from a seeded generator. Nothing here is
taken from an evaluation set.
"""

import functools
import random
import re
from collections.abc import Callable
from pathlib import Path


def _lists() -> dict[str, list[str]]:
    text = Path(__file__).with_name("words.txt").read_text(encoding="utf-8").partition("\n\n")[2]
    sections = (section.partition("]") for section in text.split("[")[1:])
    return {name: [" ".join(word.split()) for word in body.split(",")] for name, _, body in sections}


LISTS = _lists()


class Words:
    """Draws slot values. The same generator state gives the same values."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def draw(self, kind: str) -> str:
        """A value of `kind`, one of KINDS."""
        return KINDS[kind](self)

    def near(self, kind: str, value: str) -> str:
        """Another value of `kind`, for ordinals and years often a neighbour of `value`."""
        digits = re.match(r"\d+", value)
        if digits and kind in {"ordinal", "year"} and self.rng.random() < 0.7:
            number = max(1, int(digits.group()) + self.rng.randint(-6, 6))
            return self.nth(number) if kind == "ordinal" else str(number)
        return self.draw(kind)

    def invented(self, least: int = 2, most: int = 3) -> str:
        """A pronounceable word that names nothing."""
        parts = [self.rng.choice(LISTS["syllables"]) for _ in range(self.rng.randint(least, most))]
        return "".join(parts).capitalize()

    def pick(self, lists: str, real: float = 1.0) -> str:
        """A word of the named lists (separated by blanks) with probability `real`, otherwise an invented one."""
        if self.rng.random() >= real:
            return self.invented()
        return self.rng.choice([word for name in lists.split() for word in LISTS[name]])

    def person(self) -> str:
        first, last = self.pick("first", 0.7), self.pick("last", 0.6)
        style = self.rng.random()
        if style < 0.10:
            return f"{first} {self.rng.choice('ABCDEFGHJKLMNPRSTW')}. {last}"
        if style < 0.16:
            return f"{first} {self.pick('first last', 0.7)} {last}"
        if style < 0.19:
            return f"{first} {last} {self.rng.choice(['Jr.', 'III', 'II', 'Sr.'])}"
        if style < 0.22:
            return f"{first} {last}-{self.pick('last')}"
        if style < 0.25:
            return f"{self.rng.choice('ABCDEGHJKLMPRST')}.{self.rng.choice('ABCDEGHJKLMPRST')}. {last}"
        if style < 0.29:
            return f"{first} {self.rng.choice(['de', 'van', 'von', 'al', 'Mac', 'La', 'del'])} {last}"
        if style < 0.33:
            return self.pick("first last", 0.5)
        return f"{first} {last}"

    def ordinal(self) -> str:
        if self.rng.random() < 0.05:
            return self.rng.choice(
                ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "at-large"]
            )
        return self.nth(self.rng.randint(1, self.rng.choice([9, 20, 60, 200])))

    @staticmethod
    def nth(n: int) -> str:
        return f"{n}{'th' if 10 <= n % 100 <= 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"

    def number(self) -> str:
        style = self.rng.random()
        if style < 0.4:
            return str(self.rng.randint(2, 99))
        if style < 0.7:
            return f"{self.rng.randint(1, 400)},{self.rng.randint(0, 999):03d}"
        if style < 0.85:
            return str(self.rng.randint(100, 2000))
        return (
            f"{self.rng.randint(1, 90)}.{self.rng.randint(1, 9)} million"
            if style < 0.93
            else self.pick("counts")
        )

    def year(self) -> str:
        return str(self.rng.randint(1500, 2025) if self.rng.random() < 0.3 else self.rng.randint(1890, 2025))

    def date(self) -> str:
        day, month, year = self.rng.randint(1, 28), self.rng.choice(LISTS["months"]), self.year()
        return self.rng.choice(
            [f"{day} {month} {year}", f"{month} {day}, {year}", f"{month} {year}", f"{month} {day}"]
        )

    def title(self) -> str:
        words = [self.rng.choice(LISTS["title_words"]) for _ in range(self.rng.choice([1, 1, 2, 2, 2, 3]))]
        if self.rng.random() < 0.2:
            words.insert(self.rng.randint(0, len(words)), self.invented())
        if len(words) == 3 and self.rng.random() < 0.7:
            words[1] = self.rng.choice(["of", "of the", "and the", "in the", "for", "and"])
        return ("The " if self.rng.random() < 0.35 else "") + " ".join(words)

    def company(self) -> str:
        tail = self.rng.choice(
            [
                "Airlines",
                "Bank",
                "Brewery",
                "Electronics",
                "Energy",
                "Foods",
                "Group",
                "Holdings",
                "Motors",
                "Press",
                "Records",
            ]
        )
        return self.rng.choice(
            [
                self.invented(),
                f"{self.invented()} {tail}",
                f"{self.pick('last')} & {self.pick('last')}",
                f"{self.pick('last')} {tail}",
            ]
        )

    def band(self) -> str:
        return self.rng.choice(
            [
                f"The {self.pick('title_words')}s",
                self.invented(),
                f"{self.pick('title_words')} {self.pick('title_words')}",
            ]
        )

    def team(self) -> str:
        tail = self.rng.choice(
            [
                "Athletic",
                "Bears",
                "City",
                "Dragons",
                "FC",
                "Giants",
                "Kings",
                "Lions",
                "Rangers",
                "Rovers",
                "Sharks",
                "Town",
                "United",
            ]
        )
        return f"{self.place()} {tail}"

    def place(self) -> str:
        """A city or town."""
        name = self.pick("cities", 0.5)
        if self.rng.random() < 0.12:
            return self.rng.choice(["New ", "Port ", "San ", "Fort ", "East ", "Saint "]) + name
        return name

    def region(self) -> str:
        if self.rng.random() < 0.75:
            return self.pick("regions")
        return self.rng.choice(["", "", "North ", "South ", "New ", "West "]) + self.invented()

    def country(self) -> str:
        return (
            self.pick("countries")
            if self.rng.random() < 0.75
            else self.invented(1, 2) + self.rng.choice(["ia", "land", "stan"])
        )

    def thing(self) -> str:
        return f"{self.pick('adjectives')} {self.pick('nouns')}"

    def school(self) -> str:
        return self.rng.choice(
            [f"University of {self.place()}", f"{self.pick('last')} College", f"{self.place()} Institute of Technology",
             f"{self.invented()} University", f"{self.place()} Conservatory"]
        )  # fmt: skip

    def award(self) -> str:
        tail = self.rng.choice(["Award", "Medal", "Prize", "Cup", "Trophy", "Fellowship"])
        return f"{self.pick('last title_words', 0.8)} {tail}"

    def river(self) -> str:
        return self.rng.choice([f"{self.invented()} River", f"River {self.invented()}", f"{self.invented()}"])

    def peak(self) -> str:
        return self.rng.choice(
            [f"Mount {self.invented()}", f"{self.invented()} Peak", f"{self.pick('title_words')} Mountain"]
        )

    def species(self) -> str:
        tail = self.pick("animals")
        names = [f"{self.invented()} {self.invented().lower()}", f"{self.pick('adjectives')} {tail}"]
        return self.rng.choice([*names, f"{self.pick('last')}'s {tail}"])

    def drug(self) -> str:
        return self.invented(2, 2).lower() + self.rng.choice(
            ["ine", "ol", "mab", "cillin", "pril", "azole", "ide"]
        )

    def money(self) -> str:
        return (
            self.rng.choice(["$", "£", "€", ""])
            + self.number()
            + self.rng.choice(["", " dollars", " pounds", ""])
        )


KINDS: dict[str, Callable[[Words], str]] = {
    "person": Words.person, "ordinal": Words.ordinal, "number": Words.number, "year": Words.year, "date": Words.date,
    "title": Words.title, "company": Words.company, "band": Words.band, "team": Words.team, "place": Words.place,
    "region": Words.region, "country": Words.country, "thing": Words.thing, "school": Words.school,
    "award": Words.award, "river": Words.river, "peak": Words.peak, "species": Words.species, "drug": Words.drug,
    "money": Words.money, "name": Words.invented,
}  # fmt: skip
LISTED = {
    "occupation": "occupations", "sport": "sports", "genre": "genres", "language": "languages", "faith": "faiths",
    "colour": "colours", "disease": "diseases", "animal": "animals", "month": "months", "instrument": "instruments",
    "material": "materials", "food": "foods", "role": "roles", "adjective": "adjectives", "noun": "nouns",
}  # fmt: skip
KINDS |= {kind: functools.partial(Words.pick, lists=name) for kind, name in LISTED.items()}
