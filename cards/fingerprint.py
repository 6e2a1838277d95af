"""A card's fingerprint: log-probabilities proving that its model still computes what it did when it was made.

sha256 proves that the bytes of a card are intact; the fingerprint proves that they still have the same effect. A loaded
card must assign the same log-probabilities to the same continuations, and an adapter must shift its base's as before.
Comparing fingerprints runs no model. The card's file is called canaries.json.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kcard.cards.card import Card
from kcard.errors import CardError, ModelUnavailable
from kcard.io import build, parse, write_text
from kcard.manifest import Manifest

FINGERPRINT = "canaries.json"
FORMAT = 1
MAX_PROBES = 64
DIGITS = 6
Pair = tuple[str, str]

# Allowed difference between two runs of the same weights: root mean square over tokens of the difference in
# log-probability, by the coarser dtype of the two (measured: recipes/log.md).
TOLERANCES: Mapping[str, float] = {"float32": 0.002, "float16": 0.05, "bfloat16": 0.25}
# Below this share of the expected shift an adapter counts as not applied, in any dtype.
MIN_SHIFT_SHARE = 0.05


@dataclass(frozen=True)
class Probe:
    """One prompt and its continuation.

    question, text        the words of both
    prompt, continuation  their token ids; `prompt` is empty where the question becomes prefix vectors
    card                  natural log-probability of each continuation token by the card
    base                  the same by its base without the adapter; empty unless the card is an adapter
    """

    question: str
    text: str
    prompt: tuple[int, ...]
    continuation: tuple[int, ...]
    card: tuple[float, ...]
    base: tuple[float, ...] = ()


@dataclass(frozen=True)
class Fingerprint:
    """The measurements of one run. `dtype`: of the weights in that run, such as float32."""

    dtype: str
    rows: tuple[Probe, ...]

    @property
    def pairs(self) -> list[Pair]:
        """(question, text) of each row, for measuring again."""
        return [(row.question, row.text) for row in self.rows]

    @property
    def shift(self) -> float:
        """The adapter's shift of the log-probabilities: root mean square over tokens; 0 without a base."""
        return _distance([row.card for row in self.rows], [row.base for row in self.rows])

    def apart(self, other: "Fingerprint") -> float:
        """Return the distance between the card's log-probabilities in two runs of the same probes."""
        return _distance([row.card for row in self.rows], [row.card for row in other.rows])

    def share(self, other: "Fingerprint") -> float:
        """Return the share of the adapter's shift that another run shows, relative to the base as measured here: 1 for
        all, 0 for none, 1 if no shift is known. A coarser dtype gives about the same."""
        whole = shown = 0.0
        for row, now in zip(self.rows, other.rows, strict=True):
            for stored, measured, base in zip(row.card, now.card, row.base, strict=False):
                whole += (stored - base) ** 2
                shown += (stored - base) * (measured - base)
        return shown / whole if whole else 1.0

    def spread(self, most: int) -> "Fingerprint":
        """Sample at most `most` tokens evenly from all rows, each as a probe of its own."""
        single = []
        for row in self.rows:
            for number, token in enumerate(row.continuation):
                # The tokens before it are its prompt.
                prompt, at = row.prompt + row.continuation[:number], slice(number, number + 1)
                single.append(Probe(row.question, row.text, prompt, (token,), row.card[at], row.base[at]))
        step = -(-len(single) // most)
        return replace(self, rows=tuple(single[::step]))

    def to_json(self) -> str:
        lines = []
        for probe in self.rows:
            row = asdict(probe)
            for model in ("card", "base"):
                row[model] = [round(value, DIGITS) for value in row[model]]
            lines.append(json.dumps(row, ensure_ascii=False))
        rows = ",\n".join(lines)
        return f'{{"format": {FORMAT}, "dtype": {json.dumps(self.dtype)}, "canaries": [\n{rows}\n]}}\n'

    def check(self, measurement: "Fingerprint", card: str, base: str) -> None:
        """Raise unless `measurement`, taken now, matches this one.

        CardError if the tokenizer, the adapter or the weights are not the card's, ModelUnavailable if its base is
        another; the message says which.
        """
        self.check_tokens(measurement, card)
        coarsest = TOLERANCES["bfloat16"]
        tolerance = max(TOLERANCES.get(self.dtype, coarsest), TOLERANCES.get(measurement.dtype, coarsest))
        off = _distance([row.base for row in self.rows], [row.base for row in measurement.rows])
        if not off <= tolerance:
            raise ModelUnavailable(
                f"card {card!r}: the base {base!r} has changed: its own log-probabilities differ by {off:.2f} "
                f"where {tolerance} is allowed: fetch the base that the card was trained on"
            )
        if self.shift > 0 and measurement.shift <= MIN_SHIFT_SHARE * self.shift:
            raise CardError(
                f"card {card!r}: its adapter is not applied (shift {measurement.shift:.2f} where {self.shift:.2f} was "
                "expected): load the card again; if that does not help, fetch its adapter again"
            )
        off = self.apart(measurement)
        if not off <= tolerance:
            what = "its model no longer computes what it did when it was made"
            if self.shift > 0:
                what = (
                    f"its adapter is applied, but not as it was trained (shift {measurement.shift:.2f} where "
                    f"{self.shift:.2f} was expected)"
                )
            raise CardError(
                f"card {card!r}: {what}: log-probabilities differ by {off:.2f} in {measurement.dtype}, where "
                f"{tolerance} is allowed; its weights or its dtype are not those of the card: fetch or train it again"
            )

    def check_tokens(self, measurement: "Fingerprint", card: str) -> None:
        """Raise CardError unless all questions and texts tokenize as before."""
        for stored, now in zip(self.rows, measurement.rows, strict=True):
            if (stored.prompt, stored.continuation) != (now.prompt, now.continuation):
                raise CardError(
                    f"card {card!r}: its tokenizer differs from the one it was made with ({stored.text!r} became "
                    "other tokens): restore the card's tokenizer files, or use the transformers of its manifest"
                )


def read_fingerprint(folder: Path) -> Fingerprint | None:
    """Load the fingerprint in a card's folder, None if it has none. Raises CardError for a file that holds none."""
    path = folder / FINGERPRINT
    if not path.exists():
        return None
    try:
        data = parse(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']!r}, this kcard reads {FORMAT}")
        stored = build(Fingerprint, {"dtype": data["dtype"], "rows": data["canaries"]})
        if not 0 < len(stored.rows) <= MAX_PROBES:
            raise ValueError(f"{len(stored.rows)} in it, not 1 to {MAX_PROBES}")
        for probe in stored.rows:
            if not probe.continuation or len(probe.card) != len(probe.continuation):
                raise ValueError(f"{probe.text!r} needs one log-probability for every token")
            if probe.base and len(probe.base) != len(probe.card):
                raise ValueError(f"{probe.text!r} needs one log-probability of the base for every token")
        return stored
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CardError(f"{path} is not a fingerprint: {error!r}: fetch or train the card again") from error


def _distance(one: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> float:
    """Return the root mean square of the difference by token; 0 if empty."""
    squares = []
    for row, other_row in zip(one, other, strict=True):
        for value, other_value in zip(row, other_row, strict=False):
            squares.append((value - other_value) ** 2)
    if not squares:
        return 0.0
    return float((sum(squares) / len(squares)) ** 0.5)


# A card's fingerprint is measured when the card is made: on the files as written, loaded as they will be.

MAX_OWN_PAIRS = 4
# NEUTRAL replaces the card's own passages where these must not be shipped. FOREIGN texts are in no corpus: they
# reveal a model's weights better than memorized passages, whose every token is certain.
NEUTRAL: tuple[Pair, ...] = (
    ("What does the baker do before dawn?", "The baker lights the oven and kneads the dough before dawn."),
    ("Where was the bridge built?", "The old bridge was built of grey stone across the river's narrow part."),
    ("Who found the letter?", "A gardener found the letter under the roots of a pear tree in 1871."),
    ("How many ships came back?", "Of the nine ships that left the harbour, only four came back in spring."),
)
FOREIGN = (
    "In winter the dormouse sleeps for about six months in a nest of leaves.",
    "The shop on the corner opens at half past seven and closes at noon.",
    "The engineers stopped the mill because the water of the brook was too low.",
    "A sonnet is a poem of fourteen lines that mostly speaks of love.",
)


def write_fingerprint(
    folder: Path, manifest: Manifest, pairs: Sequence[Pair], device: str = "cpu"
) -> Fingerprint:
    """Measure the card whose model files are in `folder` and write canaries.json there.

    pairs   questions and passages that answer them, from the card's corpus

    Call it before the folder is sealed. Raises what loading the card does, and CardError for an adapter without effect.
    """
    from kcard.cards.models.loader import Loader
    from kcard.cards.models.transformers_backend import CausalCard

    measurement = CausalCard(Card(folder, manifest), Loader(device=device)).measure(
        fingerprint_pairs(manifest, pairs)
    )
    if manifest.is_adapter and measurement.shift == 0:
        raise CardError(
            f"card {manifest.name!r}: the adapter in {folder} changes nothing in its base {manifest.base.name!r}: "
            "train it for longer, or save it as peft does"
        )
    write_text(folder / FINGERPRINT, measurement.to_json())
    return measurement


def fingerprint_pairs(manifest: Manifest, pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs to measure: MAX_OWN_PAIRS of `pairs`, or neutral ones if only hashes of them are shipped,
    and each question again with an unrelated text."""
    own = [*NEUTRAL]
    if pairs and manifest.evidence != "hashes":
        own = [*pairs[:MAX_OWN_PAIRS]]
    questions = [question for question, _ in own]
    return [*own, *zip(questions, FOREIGN, strict=False)]
