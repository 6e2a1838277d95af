"""The popularity gate (Mallen et al., 2023): a threshold for each relation."""

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from kcard import system
from kcard.errors import UsageError
from kcard.gates.base import GateState, Resources, parse_settings
from kcard.gates.features import Representation, bind, finite_vectors, normalize
from kcard.gates.features import find as representation
from kcard.gates.records import Query, Record
from kcard.interfaces import Array
from kcard.io import Row, parse, read_rows

__all__ = [
    "BOUND",
    "GROUP",
    "Popularity",
    "PopularityFile",
    "PopularitySettings",
    "Relations",
    "best_threshold",
    "check_popularity",
    "find",
    "mask_names",
    "templates",
]


# Where the popularity of a question's subject comes from, by name: file:PATH, or NAME:REST of a user's own source.
#
# Sources are found through the entry-point group `kcard.popularity`, and made with what stands after the colon.

GROUP = "kcard.popularity"


def find(name: str) -> Callable[[str], float | None]:
    """The source of that name, from a question to its subject's popularity; UsageError lists the ones there are."""
    kind, _, argument = name.partition(":")
    source: Callable[[str], float | None] = system.load(GROUP, kind)(argument)
    return source


def check_popularity(value: float, question: str) -> float:
    """The value, if it is a popularity: finite and at least 0. Raises UsageError."""
    if not (math.isfinite(value) and value >= 0):
        raise UsageError(
            f"popularity of {question[:60]!r} is {value}, expected a number of at least 0: correct its source"
        )
    return value


class PopularityFile:
    """A JSONL file, one object a line with `question` and `popularity`, such as a file of records.

    Raises UsageError, naming file and line, for what can't be read.
    """

    def __init__(self, path: str) -> None:
        if not path:
            raise UsageError("popularity source file: name the file, as in file:popularity.jsonl")
        self._known = dict(
            _entry(row, where) for where, row in read_rows(Path(path).expanduser(), "popularity file")
        )

    def __call__(self, question: str) -> float | None:
        return self._known.get(_key(question))


def _entry(row: Row, where: str) -> tuple[str, float]:
    if not isinstance(row.get("question"), str):
        raise UsageError(f"{where}: an object with a question and its popularity was expected")
    value = row.get("popularity")
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e300:
        raise UsageError(f"{where}: popularity is {value!r:.40}, expected a number of at least 0")
    return _key(row["question"]), float(value)


def _key(question: str) -> str:
    return " ".join(question.lower().split())


# What a question asks about its subject: the relation whose questions are nearest, once names are masked.
#
# Names say nothing of the relation and would decide the cosine; with a placeholder in their stead, the forms of two
# questions of one relation are nearly equal.

SLOT = "it"
BUILT_IN = Path(__file__).resolve().with_name("popqa_relations.json")
TAIL = re.compile(r"""(['’]s)?[)\]"'”’]*([?.!,;:]*)$""")


@dataclass(frozen=True, eq=False)
class Relations:
    """A prototype for each relation: `vectors` of unit length, shape (r, d)."""

    names: tuple[str, ...]
    vectors: Array

    @classmethod
    def of(cls, questions: Iterable[tuple[str, str]], representation: Representation) -> "Relations":
        """From (relation, question) pairs: the mean vector of each relation's masked questions."""
        by_relation: defaultdict[str, set[str]] = defaultdict(set)
        for relation, question in questions:
            by_relation[relation].add(mask_names(question))
        names = sorted(by_relation)
        means = [finite_vectors(representation, sorted(by_relation[name])).mean(axis=0) for name in names]
        return cls(tuple(names), normalize(np.stack(means)))

    def nearest(
        self, questions: Sequence[str], representation: Representation, floor: float
    ) -> list[str | None]:
        """For each question the nearest relation, by cosine; None where it is not as near as `floor`."""
        if not questions:
            return []
        cosines = (
            normalize(finite_vectors(representation, [mask_names(question) for question in questions]))
            @ self.vectors.T
        )
        return [
            self.names[i] if row[i] >= floor else None
            for i, row in zip(cosines.argmax(1), cosines, strict=True)
        ]


def templates(path: str) -> list[tuple[str, str]]:
    """(relation, question) pairs of a JSON object that maps relations to questions with {} for the subject.

    "popqa": the sixteen relations of PopQA. Raises UsageError for a file that is no such object.
    """
    file = BUILT_IN if path == "popqa" else Path(path).expanduser()
    try:
        questions = parse(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"relation templates {path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"relation templates {path}: not JSON in UTF-8: {error}") from error
    if not isinstance(questions, dict) or not questions:
        raise UsageError(f"relation templates {path}: an object from relations to questions was expected")
    for relation, question in questions.items():
        if not isinstance(question, str) or "{}" not in question:
            raise UsageError(
                f"relation templates {path}: {relation!r} is {json.dumps(question)[:60]}, expected a question with "
                "{} for its subject"
            )
    return [(relation, question.replace("{}", SLOT)) for relation, question in questions.items()]


def mask_names(question: str) -> str:
    """The question with one placeholder for every run of words that begin with anything but a small letter.

    The first word is left as it is, since questions begin with a capital.
    """
    words = question.split()
    placeholders = words[:1]
    inside = False
    for word in words[1:]:
        name = word[0].isupper() or not word[0].isalpha()
        ending = TAIL.search(word)
        placed = f"{SLOT}{ending[1] or ''}{ending[2]}" if name and ending else word
        if name and inside:
            placeholders[-1] = placed
        else:
            placeholders.append(placed)
        inside = name
    return " ".join(placeholders)


# The threshold that serves the questions of a development set best (Adaptive Retrieval, section 5), found fast.

BOUND = 1000.0  # stands for an infinite threshold, so that it can be stored and subtracted
DIGITS = 9  # sums that agree so far are equal


def best_threshold(
    scores: npt.ArrayLike, without: npt.ArrayLike, with_: npt.ArrayLike, bound: float = BOUND
) -> float:
    """The threshold t that maximises the mean of: with knowledge where the score is below t, without elsewhere.

    scores, without, with_: shape (n,), n at least 1, scores within (-bound, bound). What is tried: -bound, which seeks
    nowhere; the middle between neighbouring scores, equal ones staying together; bound, which seeks everywhere. Of
    thresholds that are as good the lowest is taken, which seeks least. One sort and a running sum: n log n, where
    brute force is n squared.
    """
    order = np.argsort(scores, kind="stable")
    values = np.asarray(scores, dtype=np.float64)[order]
    gains = np.asarray(with_, dtype=np.float64)[order] - np.asarray(without, dtype=np.float64)[order]
    sums = np.round(np.concatenate([[0.0], np.cumsum(gains)]), DIGITS)
    apart = np.flatnonzero(values[1:] > values[:-1]) + 1
    places = np.concatenate([[0], apart, [len(values)]])
    cut = int(places[np.argmax(sums[places])])
    if cut in {0, len(values)}:
        return bound if cut else -bound
    middle = float(values[cut - 1] / 2 + values[cut] / 2)
    # The middle of two neighbouring floats may round to the lower one, which would then not lie below it.
    return middle if middle > values[cut - 1] else float(values[cut])


KIND = "popularity"
Source = Callable[[str], float | None]


@dataclass(frozen=True)
class PopularitySettings:
    """How popularity and relations are found where a question comes without them.

    source     where popularity comes from (kcard.gates.popularity); "": only from the records and queries
    templates  "popqa", or a JSON file of relation templates: used where no record names its relation
    floor      a question that is less like every relation than this (cosine) belongs to none
    encoder    of questions, for the nearest relation
    """

    source: str = ""
    templates: str = "popqa"
    floor: float = 0.6
    encoder: str = "minilm"


@dataclass(frozen=True, eq=False)
class Popularity:
    """The score is ln(1 + popularity) less that of the relation's threshold, so that one threshold, 0, decides.

    `thresholds`: by relation, as ln(1 + popularity); -1000 where the relation never needs knowledge, 1000 where it
    always does. `pooled`: the one over all records, for relations that were not seen. A subject that the source does
    not know has popularity 0; where there is no source either, UsageError is raised.
    """

    options: PopularitySettings
    thresholds: Mapping[str, float]
    pooled: float
    relations: Relations
    representation: Representation
    source: Source | None
    kind: ClassVar[str] = KIND
    threshold: ClassVar[float] = 0.0

    @classmethod
    def fit(cls, records: Sequence[Record], settings: Mapping[str, Any], resources: Resources) -> Self:
        """Every record counts. Raises UsageError for none, and for one without popularity."""
        if not records:
            raise UsageError(f"gate {KIND}: there are no records to fit it on: add some")
        options = parse_settings(PopularitySettings, settings, KIND)
        encoder = _encoder(options, resources)
        named = [(record.relation, record.question) for record in records if record.relation]
        relations = Relations.of(named or templates(options.templates), encoder)
        source = resources.popularity or (find(options.source) if options.source else None)
        started = cls(replace(options, encoder=encoder.name), {}, 0.0, relations, encoder, source)
        logs, relation_names = started._measured([record.query for record in records])
        rows: defaultdict[str, list[int]] = defaultdict(list)
        for row, relation in enumerate(relation_names):
            if relation is not None:
                rows[relation].append(row)
        thresholds = {
            relation: _best(logs[rows[relation]], records, rows[relation]) for relation in sorted(rows)
        }
        return replace(started, thresholds=thresholds, pooled=_best(logs, records, range(len(records))))

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], threshold: float, state: GateState, resources: Resources
    ) -> Self:
        options = parse_settings(PopularitySettings, settings, KIND)
        vectors, thresholds = state.arrays["relations"], state.arrays["thresholds"]
        names, fitted = tuple(state.values["relations"]), list(state.values["fitted"])
        if vectors.ndim != 2 or len(vectors) != len(names) or thresholds.shape != (len(fitted) + 1,):
            raise ValueError("its arrays don't fit each other")
        if threshold != cls.threshold or not (np.abs(thresholds) <= BOUND).all():
            raise ValueError("its thresholds are invalid")
        encoder = bind(options.encoder, state.values["encoder_sha256"], _same(options, resources))
        source = resources.popularity or (find(options.source) if options.source else None)
        *by_relation, pooled = map(float, thresholds)
        return cls(
            options,
            dict(zip(fitted, by_relation, strict=True)),
            pooled,
            Relations(names, vectors),
            encoder,
            source,
        )

    @property
    def settings(self) -> Mapping[str, Any]:
        return asdict(self.options)

    def scores(self, queries: Sequence[Query]) -> Array:
        logs, relations = self._measured(queries)
        limits = [
            self.pooled if relation is None else self.thresholds.get(relation, self.pooled)
            for relation in relations
        ]
        scores: Array = (logs - np.array(limits, dtype=np.float64)).astype(np.float32)
        return scores

    def state(self) -> GateState:
        return GateState(
            {
                "relations": self.relations.vectors,
                "thresholds": np.array([*self.thresholds.values(), self.pooled], dtype=np.float64),
            },
            {
                "relations": list(self.relations.names),
                "fitted": list(self.thresholds),
                "encoder_sha256": self.representation.digest,
            },
        )

    def _measured(self, queries: Sequence[Query]) -> tuple[Any, list[str | None]]:
        """ln(1 + popularity) of each, shape (n,), and the relation of each, or None."""
        logs = np.log1p(np.array([self._popularity(query) for query in queries], dtype=np.float64))
        unnamed = [query.question for query in queries if query.relation is None]
        nearest = iter(self.relations.nearest(unnamed, self.representation, self.options.floor))
        return logs, [next(nearest) if query.relation is None else query.relation for query in queries]

    def _popularity(self, query: Query) -> float:
        if query.popularity is not None:
            return check_popularity(query.popularity, query.question)
        if self.source is None:
            raise UsageError(
                f"gate {KIND}: the popularity of the subject of {query.question[:60]!r} is unknown: add it "
                "to every record, or give a source, such as source=file:popularity.jsonl"
            )
        popularity = self.source(query.question)
        return 0.0 if popularity is None else check_popularity(popularity, query.question)


def _best(logs: Any, records: Sequence[Record], rows: Sequence[int]) -> float:
    without = [records[row].correct_without for row in rows]
    return best_threshold(logs, without, [records[row].correct_with for row in rows])


def _encoder(options: PopularitySettings, resources: Resources) -> Representation:
    return _same(options, resources) or representation(options.encoder)


def _same(options: PopularitySettings, resources: Resources) -> Representation | None:
    """What other gates embed with, if it is the one for relations: it may know the vectors already."""
    shared = resources.representation
    return shared if shared is not None and shared.name == options.encoder else None
