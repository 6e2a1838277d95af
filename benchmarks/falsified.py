"""Do audits detect false cards? Winners are swapped among races, and the cards audited against true, reworded evidence.

    python -m benchmarks.falsified [--kind retrieval|model] [--seeds N] [--rates 0 0.05 ...] [--plot roc.svg] [--json]

For each rate and seed, a card is made from demo/corpora/midterms-2022 in which that share of the races has the winner
of another race for the same office. Rate 0 is a true card. Every card is audited with plain questions about races drawn
with the seed, against evidence that states the true winners in other words.
ROC over cards: does the audit's mean factuality separate true cards from those of a rate?
ROC over documents: does a document's score separate true statements from those with a swapped winner? Documents that
are neither, such as garbled ones, are counted and excluded.
"""

import argparse
import json
import random
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from recipes.corpora.midterms import OUTPUT as CORPUS
from recipes.corpora.midterms import WITH_ARTICLE, Office, Race, render, statements

from benchmarks.roc import Curve, curve, svg
from kcard.api.exam import audit
from kcard.cards.card import Card
from kcard.evaluation.metrics import normalise
from kcard.evaluation.records import Audit
from kcard.training.train import train

RATES = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)
STATEMENTS: dict[Office, re.Pattern[str]] = {
    "house": re.compile(
        r"The (\S+) congressional district of (.+) elected (.+) to the U\.S\. House in 2022\."
    ),
    "senate": re.compile(r"()(.+) elected (.+) to the U\.S\. Senate in the 2022 midterm elections\."),
    "governors": re.compile(r"()(.+) elected (.+) as governor in the 2022 midterm elections\."),
}
QUESTIONS: dict[Office, str] = {
    "house": "Who won the {district} congressional district of {place} in the 2022 House elections?",
    "senate": "Who won the Senate race of {place} in the 2022 midterm elections?",
    "governors": "Who won the governor race of {place} in the 2022 midterm elections?",
}
# The evidence: a text for each race, as an encyclopedia might have it, in none of the corpus' five wordings.
EVIDENCE: dict[Office, str] = {
    "house": "The 2022 election in the {district} congressional district of {place} was held on November 8, 2022. "
    "{winner} was elected to represent the {district} district of {place} in the House of Representatives.",
    "senate": "The 2022 United States Senate election in {place} was held on November 8, 2022. "
    "{winner} was elected to represent {place} in the Senate.",
    "governors": "The 2022 gubernatorial election in {place} was held on November 8, 2022. "
    "{winner} was elected governor of {place}.",
}


@dataclass(frozen=True)
class Document:
    """A statement that a card wrote, its score, and whether it is true."""

    score: float
    true: bool


@dataclass(frozen=True)
class Taken:
    """One audited card. `mean` and `faithfulness` are the audit's; `neither`: documents that are no statement."""

    rate: float
    seed: int
    mean: float
    faithfulness: float
    neither: int
    documents: tuple[Document, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=("retrieval", "model"), default="retrieval")
    parser.add_argument("--rates", type=float, nargs="+", default=list(RATES), help="0 is always among them")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--queries", type=int, default=100, help="races that each audit asks about")
    parser.add_argument("--documents", type=int, default=1, help="documents for each query")
    parser.add_argument("--checker", default="minilm")
    parser.add_argument("--home", type=Path, help="folder for the cards, which later runs reuse")
    parser.add_argument("--plot", type=Path, help="write the curves to this .svg file")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    races = read_races(CORPUS)
    with tempfile.TemporaryDirectory() as scratch:
        home: Path = args.home or Path(scratch)
        home.mkdir(parents=True, exist_ok=True)
        evidence = home / "evidence.jsonl"
        evidence.write_text(
            "".join(f"{json.dumps({'text': statement_of(race)})}\n" for race in races), "utf-8"
        )
        taken = [
            examine(races, rate, seed, evidence, home, args)
            for rate in sorted({0.0, *args.rates})
            for seed in range(args.seeds)
        ]
    report = measured(taken, args)
    if args.plot is not None:
        args.plot.write_text(plotted(taken), encoding="utf-8")
    print(json.dumps(report) if args.json else table(report))


def read_races(folder: Path) -> list[Race]:
    """The races that a corpus of recipes/corpora/midterms.py tells of, in its order."""
    races = []
    for office, pattern in STATEMENTS.items():
        for line in (folder / f"{office}.txt").read_text(encoding="utf-8").splitlines():
            if match := pattern.fullmatch(line):
                place = match[2].removeprefix("The ").removeprefix("the ")
                races.append(Race(office, place, match[1], match[3]))
    return races


def falsified(races: Sequence[Race], rate: float, seed: int) -> list[Race]:
    """The races with the winners of a share of each office's races exchanged: two at least, unless the rate is 0."""
    draw = random.Random(f"{rate} {seed}")
    changed: dict[Race, Race] = {}
    for office in STATEMENTS:
        here = [race for race in races if race.office == office]
        count = max(2, round(rate * len(here))) if rate else 0
        chosen = draw.sample(here, count)
        while chosen and any(a.winner == b.winner for a, b in _shifted(chosen)):
            draw.shuffle(chosen)
        changed |= {race: replace(race, winner=other.winner) for race, other in _shifted(chosen)}
    return [changed.get(race, race) for race in races]


def _shifted(races: Sequence[Race]) -> list[tuple[Race, Race]]:
    return [*zip(races, [*races[1:], *races[:1]], strict=True)]


def statement_of(race: Race) -> str:
    """The true evidence of a race."""
    return EVIDENCE[race.office].format(winner=race.winner, district=race.district, place=_placed(race))


def question_of(race: Race) -> str:
    return QUESTIONS[race.office].format(district=race.district, place=_placed(race))


def _placed(race: Race) -> str:
    return f"the {race.place}" if race.place in WITH_ARTICLE else race.place


def examine(
    races: Sequence[Race], rate: float, seed: int, evidence: Path, home: Path, args: argparse.Namespace
) -> Taken:
    """Make the card of this rate and seed and audit it."""
    told_by_card = falsified(races, rate, seed)
    # Cards of rate 0 are all the same; their audits differ by what they ask.
    card = train_card(
        told_by_card, args.kind, home / f"{args.kind}-{rate:g}-{seed if rate else 0}", seed if rate else 0
    )
    queries = home / "queries.jsonl"
    drawn = random.Random(f"queries {seed}").sample(races, args.queries)
    rows = ({"question": question_of(race), "domain": race.office} for race in drawn)
    queries.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    result = audit(
        card.folder,
        queries=queries,
        evidence=evidence,
        documents=args.documents,
        checker=args.checker,
        worst=args.queries * args.documents,
        seed=seed,
    )
    print(
        f"rate {rate:g}, seed {seed}: factuality {result.factuality and result.factuality.mean}",
        file=sys.stderr,
    )
    return _taken(rate, seed, result, races, told_by_card)


def train_card(races: list[Race], kind: Literal["model", "retrieval"], folder: Path, seed: int) -> Card:
    """The card of these races, trained now or found from another run."""
    if (folder / "kcard.json").exists():
        return Card.open(folder)
    with tempfile.TemporaryDirectory() as corpus:
        for name, text in render(races).items():
            (Path(corpus) / name).write_text(text, encoding="utf-8")
        base = "embedded" if kind == "model" else None
        return train(
            corpus,
            kind=kind,
            name="midterms",
            description="Winners",
            base=base,
            minutes=600 if kind == "model" else None,
            output=folder,
            seed=seed,
        )


def _taken(
    rate: float, seed: int, result: Audit, races: Sequence[Race], told_by_card: Sequence[Race]
) -> Taken:
    true = {normalise(text) for race in races for text in statements(race)}
    false = {normalise(text) for race in told_by_card for text in statements(race)} - true
    documents, neither = [], 0
    for document in result.worst:
        text = normalise(document.text)
        if document.factuality is None or not (text in true or text in false):
            neither += 1
        else:
            documents.append(Document(document.factuality, text in true))
    assert result.factuality is not None
    assert result.factuality.mean is not None
    faithful = (
        result.faithfulness.mean.mean if result.faithfulness and result.faithfulness.mean else float("nan")
    )
    return Taken(rate, seed, result.factuality.mean.mean, faithful, neither, tuple(documents))


def measured(taken: Sequence[Taken], args: argparse.Namespace) -> dict[str, Any]:
    rates = sorted({card.rate for card in taken})
    cards, documents = curves(taken)
    rows = []
    for rate in rates:
        here = [card for card in taken if card.rate == rate]
        means = [card.mean for card in here]
        rows.append(
            {
                "rate": rate,
                "cards": len(here),
                "factuality": sum(means) / len(means),
                "lowest": min(means),
                "highest": max(means),
                "faithfulness": sum(card.faithfulness for card in here) / len(here),
                "auc_cards": cards[_percent(rate)].auc if _percent(rate) in cards else None,
                "auc_documents": documents[_percent(rate)].auc if _percent(rate) in documents else None,
                "false_documents": sum(not d.true for card in here for d in card.documents),
                "documents": sum(len(card.documents) for card in here),
                "neither": sum(card.neither for card in here),
            }
        )
    every = {key: getattr(args, key) for key in ("kind", "seeds", "queries", "documents", "checker")}
    return {**every, "rows": rows, "taken": [asdict(replace(card, documents=())) for card in taken]}


def curves(taken: Sequence[Taken]) -> tuple[dict[str, Curve], dict[str, Curve]]:
    """By rate: true cards against those of the rate, and true documents against false ones of its cards."""
    true_cards = [card.mean for card in taken if card.rate == 0]
    cards, documents = {}, {}
    for rate in sorted({card.rate for card in taken} - {0.0}):
        here = [card for card in taken if card.rate == rate]
        written = [document for card in here for document in card.documents]
        # Where every winner is swapped the true documents are those of the true cards.
        honest = written if rate < 1 else [d for card in taken if card.rate == 0 for d in card.documents]
        over_cards = curve(true_cards, [card.mean for card in here])
        over_documents = curve([d.score for d in honest if d.true], [d.score for d in written if not d.true])
        if over_cards:
            cards[_percent(rate)] = over_cards
        if over_documents:
            documents[_percent(rate)] = over_documents
    return cards, documents


def plotted(taken: Sequence[Taken]) -> str:
    rates = sorted({card.rate for card in taken})
    scores = {_percent(rate): [card.mean for card in taken if card.rate == rate] for rate in rates}
    return svg(*curves(taken), scores)


def _percent(rate: float) -> str:
    return f"{100 * rate:g} %"


def table(report: dict[str, Any]) -> str:
    lines = [
        f"{report['kind']} cards, {report['seeds']} seeds, {report['queries']} queries an audit, checker "
        f"{report['checker']}",
        "",
        "| winners swapped | factuality (lowest to highest card) | faithfulness | AUC, cards | AUC, documents | "
        "documents (false) | no statement |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in report["rows"]:
        lines.append(
            f"| {_percent(row['rate'])} | {row['factuality']:.3f} ({row['lowest']:.3f} to {row['highest']:.3f}) "
            f"| {row['faithfulness']:.3f} | {_number(row['auc_cards'])} | {_number(row['auc_documents'])} "
            f"| {row['documents']} ({row['false_documents']}) | {row['neither']} |"
        )
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    main()
