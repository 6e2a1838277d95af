"""The popularity gate (Mallen et al., 2023): one threshold per relation."""

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from kcard import system
from kcard.errors import UsageError
from kcard.gates.base import FittedGate, GateState, Resources, Settings, parse_settings
from kcard.gates.features import Representation, bind, finite_vectors, normalize
from kcard.gates.features import find as representation
from kcard.gates.records import Query, Record
from kcard.interfaces import Array
from kcard.io import parse, read_rows

GROUP = "kcard.popularity"


def find(name: str) -> Callable[[str], float | None]:
    """Return the source of that name, a function from a question to its subject's popularity. Raises UsageError.

    `name`: file:PATH, or NAME:REST of a user's own source, registered under the entry-point group `kcard.popularity`
    and called with the text after the colon.
    """
    kind, _, argument = name.partition(":")
    source: Callable[[str], float | None] = system.load(GROUP, kind)(argument)
    return source


def check_popularity(value: float, question: str) -> float:
    """Return the value if it is a popularity: finite and at least 0. Raises UsageError."""
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
        self._popularity: dict[str, float] = {}
        for where, row in read_rows(Path(path).expanduser(), "popularity file"):
            if not isinstance(row.get("question"), str):
                raise UsageError(f"{where}: an object with a question and its popularity was expected")
            value = row.get("popularity")
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e300:
                raise UsageError(f"{where}: popularity is {value!r:.40}, expected a number of at least 0")
            self._popularity[_key(row["question"])] = float(value)

    def __call__(self, question: str) -> float | None:
        return self._popularity.get(_key(question))


def _key(question: str) -> str:
    return " ".join(question.lower().split())


SLOT = "it"
BUILT_IN = Path(__file__).resolve().with_name("popqa_relations.json")
WORD_ENDING = re.compile(r"""(['’]s)?[)\]"'”’]*([?.!,;:]*)$""")


@dataclass(frozen=True, eq=False)
class Relations:
    """A prototype of each relation: `vectors` of unit length, shape (r, d).

    Names tell nothing of the relation and would dominate the cosine; with placeholders instead, two questions of one
    relation are nearly equal.
    """

    names: tuple[str, ...]
    vectors: Array

    @classmethod
    def of(cls, questions: Iterable[tuple[str, str]], representation: Representation) -> "Relations":
        """Make prototypes from (relation, question) pairs: the mean vector of each relation's masked questions."""
        by_relation: defaultdict[str, set[str]] = defaultdict(set)
        for relation, question in questions:
            by_relation[relation].add(mask_names(question))
        names = sorted(by_relation)
        means = []
        for name in names:
            vectors = finite_vectors(representation, sorted(by_relation[name]))
            means.append(vectors.mean(axis=0))
        return cls(tuple(names), normalize(np.stack(means)))

    def nearest(
        self, questions: Sequence[str], representation: Representation, floor: float
    ) -> list[str | None]:
        """Return the nearest relation of each question, by cosine; None if it is below `floor`."""
        if not questions:
            return []
        masked = [mask_names(question) for question in questions]
        cosines = normalize(finite_vectors(representation, masked)) @ self.vectors.T
        nearest: list[str | None] = []
        for row in cosines:
            best = int(row.argmax())
            if row[best] >= floor:
                nearest.append(self.names[best])
            else:
                nearest.append(None)
        return nearest


def templates(path: str) -> list[tuple[str, str]]:
    """Read (relation, question) pairs from a JSON object that maps relations to questions with {} for the subject.

    "popqa": the sixteen relations of PopQA. Raises UsageError for a file that is no such object.
    """
    file = Path(path).expanduser()
    if path == "popqa":
        file = BUILT_IN
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
    """Replace each run of words that begin with anything but a small letter by one placeholder.

    The first word stays, since questions begin with a capital.
    """
    words = question.split()
    placeholders = words[:1]
    inside = False
    for word in words[1:]:
        is_name = word[0].isupper() or not word[0].isalpha()
        ending = WORD_ENDING.search(word)
        if is_name and ending:
            word = f"{SLOT}{ending[1] or ''}{ending[2]}"
        if is_name and inside:
            placeholders[-1] = word
        else:
            placeholders.append(word)
        inside = is_name
    return " ".join(placeholders)


BOUND = 1000.0  # stands for an infinite threshold, so that it can be stored and subtracted
SUM_DIGITS = 9  # sums that agree so far are equal


def best_threshold(
    scores: npt.ArrayLike, without: npt.ArrayLike, with_: npt.ArrayLike, bound: float = BOUND
) -> float:
    """Return the threshold t that maximises the mean of `with_` if the score is below t, and of `without` otherwise
    (Adaptive Retrieval, section 5).

    scores, without, with_: shape (n,), n at least 1, scores within (-bound, bound). Candidates are -bound, which never
    fires; the midpoints of neighbouring distinct scores; bound, which always fires. Of equally good thresholds the
    lowest is taken, which fires least. One sort and a running sum take n log n, where brute force takes n squared.
    """
    order = np.argsort(scores, kind="stable")
    values = np.asarray(scores, dtype=np.float64)[order]
    gains = np.asarray(with_, dtype=np.float64)[order] - np.asarray(without, dtype=np.float64)[order]
    sums = np.round(np.concatenate([[0.0], np.cumsum(gains)]), SUM_DIGITS)
    apart = np.flatnonzero(values[1:] > values[:-1]) + 1
    places = np.concatenate([[0], apart, [len(values)]])
    cut = int(places[np.argmax(sums[places])])
    if cut == 0:
        return -bound
    if cut == len(values):
        return bound
    middle = float(values[cut - 1] / 2 + values[cut] / 2)
    if middle > values[cut - 1]:
        return middle
    # The midpoint of two neighbouring floats has rounded to the lower one, which would not be below it.
    return float(values[cut])


KIND = "popularity"
Source = Callable[[str], float | None]


@dataclass(frozen=True)
class PopularitySettings:
    """How to find popularity and relation of a question that comes without them.

    source     the source of popularity (see `find`); "": only records and queries
    templates  "popqa", or a JSON file of relation templates: used if no record names its relation
    floor      a question whose cosine with every relation is lower belongs to none
    encoder    of questions, for the nearest relation
    """

    source: str = ""
    templates: str = "popqa"
    floor: float = 0.6
    encoder: str = "minilm"


@dataclass(frozen=True, eq=False)
class Popularity(FittedGate):
    """The score is ln(1 + popularity) minus the threshold of the relation, so that the gate's own threshold is 0.

    thresholds  by relation, as ln(1 + popularity); -1000 if the relation never needs knowledge, 1000 if it always does
    pooled      over all records, for relations that were not seen

    A subject that the source does not know has popularity 0; without a source, UsageError is raised.
    """

    options: PopularitySettings
    thresholds: Mapping[str, float]
    pooled: float
    relations: Relations
    representation: Representation
    source: Source | None
    kind = KIND
    threshold: float = 0.0

    @classmethod
    def fit(cls, records: Sequence[Record], settings: Settings, resources: Resources) -> Self:
        """Fit on all records. Raises UsageError for no records, and for one without popularity."""
        if not records:
            raise UsageError(f"gate {KIND}: there are no records to fit it on: add some")
        options = parse_settings(PopularitySettings, settings, KIND)
        encoder = _shared_encoder(options, resources) or representation(options.encoder)
        named = [(record.relation, record.question) for record in records if record.relation]
        relations = Relations.of(named or templates(options.templates), encoder)
        source = _source(options, resources)
        started = cls(replace(options, encoder=encoder.name), {}, 0.0, relations, encoder, source)
        logs, relation_names = started._measure([record.query for record in records])
        rows: defaultdict[str, list[int]] = defaultdict(list)
        for row, relation in enumerate(relation_names):
            if relation is not None:
                rows[relation].append(row)
        thresholds = {}
        for relation in sorted(rows):
            thresholds[relation] = _best(logs[rows[relation]], records, rows[relation])
        return replace(started, thresholds=thresholds, pooled=_best(logs, records, range(len(records))))

    @classmethod
    def restore(cls, settings: Settings, threshold: float, state: GateState, resources: Resources) -> Self:
        options = parse_settings(PopularitySettings, settings, KIND)
        vectors, thresholds = state.arrays["relations"], state.arrays["thresholds"]
        names, fitted = tuple(state.values["relations"]), list(state.values["fitted"])
        if vectors.ndim != 2 or len(vectors) != len(names) or thresholds.shape != (len(fitted) + 1,):
            raise ValueError("its arrays don't fit each other")
        if threshold != cls.threshold or not (np.abs(thresholds) <= BOUND).all():
            raise ValueError("its thresholds are invalid")
        encoder = bind(options.encoder, state.values["encoder_sha256"], _shared_encoder(options, resources))
        *by_relation, pooled = map(float, thresholds)
        return cls(
            options,
            dict(zip(fitted, by_relation, strict=True)),
            pooled,
            Relations(names, vectors),
            encoder,
            _source(options, resources),
        )

    def scores(self, queries: Sequence[Query]) -> Array:
        logs, relations = self._measure(queries)
        limits = []
        for relation in relations:
            limit = self.pooled
            if relation is not None:
                limit = self.thresholds.get(relation, self.pooled)
            limits.append(limit)
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

    def _measure(self, queries: Sequence[Query]) -> tuple[Any, list[str | None]]:
        """Return ln(1 + popularity) of each query, shape (n,), and its relation, or None."""
        values = []
        for query in queries:
            popularity = query.popularity
            if popularity is None:
                if self.source is None:
                    raise UsageError(
                        f"gate {KIND}: the popularity of the subject of {query.question[:60]!r} is unknown: add it "
                        "to every record, or give a source, such as source=file:popularity.jsonl"
                    )
                popularity = self.source(query.question)
            if popularity is None:
                values.append(0.0)
            else:
                values.append(check_popularity(popularity, query.question))
        logs = np.log1p(np.array(values, dtype=np.float64))
        relations = [query.relation for query in queries]
        unnamed = [place for place, relation in enumerate(relations) if relation is None]
        questions = [queries[place].question for place in unnamed]
        nearest = self.relations.nearest(questions, self.representation, self.options.floor)
        for place, relation in zip(unnamed, nearest, strict=True):
            relations[place] = relation
        return logs, relations


def _source(options: PopularitySettings, resources: Resources) -> Source | None:
    if resources.popularity is None and options.source:
        return find(options.source)
    return resources.popularity


def _best(logs: Any, records: Sequence[Record], rows: Sequence[int]) -> float:
    without = [records[row].correct_without for row in rows]
    return best_threshold(logs, without, [records[row].correct_with for row in rows])


def _shared_encoder(options: PopularitySettings, resources: Resources) -> Representation | None:
    """Return the shared representation if it is the encoder for relations: it may have cached the vectors."""
    shared = resources.representation
    if shared is not None and shared.name == options.encoder:
        return shared
    return None
