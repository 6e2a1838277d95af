"""Choice among ten thousand cards: how often the right card is found, for cards whose questions are known.

    python -m benchmarks.card_choice --path DATA [--packages FOLDER] [--cards 10000] [--each 500] [--vectors FILE]

DATA contains popqa-dev.json, wikidyk-dev.json, mmlu_redux-dev.json, truthfulqa-dev.json and the folders reading,
multihop and gate_replays. benchmarks/card_choice_worlds.py describes the cards. Their profiles are made as in training
and exams; neither used a question of this benchmark.

    BM25          the description that shares the rarest words with the question (kcard.index)
    descriptions  the nearest description (relevance minilm), as for cards without profiles
    centroids     the nearest centroid, without covered words
    profiles      as in kcard (kcard.integrators.card_ranking)

Right: the first card is the right one. In three: it is among the first three. AUROC: how well the score of the first
card separates questions that a card answers from questions that none does. Times are milliseconds per question for the
choice alone; embedding the question is reported separately. `--vectors` caches the embeddings in a file.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from benchmarks.card_choice_worlds import FOREIGN, WORLDS, Maker, WorldQuestion, worlds
from kcard import cache
from kcard.cards.profile import MAX_EMBEDDED_PASSAGES, MAX_EMBEDDED_TOKENS, profile_of
from kcard.embedded import minilm
from kcard.index import Index
from kcard.integrators import card_ranking
from kcard.integrators.card_ranking import CardIndex, Profiles
from kcard.interfaces import Array
from kcard.selectors.relevance import MiniLMRelevance, top

REPEATS = 5  # of which the fastest counts: others are disturbed by whatever else runs
Ranked = tuple[Sequence[int], float]
Rank = Callable[[str], Ranked]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", type=Path, required=True)
    parser.add_argument("--packages", type=Path, help="unpacked manuals: benchmarks.real_documents --fetch")
    parser.add_argument("--cards", type=int, default=10_000)
    parser.add_argument("--each", type=int, default=500, help="questions of a world, at most")
    parser.add_argument("--vectors", type=Path, help="file that caches the embeddings")
    parser.add_argument("--worst", type=int, default=5, help="wrong choices that are shown, the surest first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    data = worlds(args.path, args.packages, args.cards, args.each, args.seed)
    vectors = Vectors(args.vectors)
    profiles = [_profile(card, vectors) for card in data.cards]
    cache.embed = cache.matrix = vectors
    names = [card.name for card in data.cards]
    descriptions = [card.description for card in data.cards]
    whole = CardIndex(MiniLMRelevance(), descriptions, Profiles.of(names, profiles))
    report: dict[str, Any] = {"cards": len(names), "ways": {}}
    for way, rank in {
        "BM25": _bm25(descriptions),
        "descriptions": _descriptions(descriptions),
        "centroids": _centroids(whole),
        "profiles": _indexed(whole),
    }.items():
        ranked = [rank(asked.question) for asked in data.asked]
        report["ways"][way] = measured(data.asked, ranked, names)
        print(f"{way}: measured", file=sys.stderr)
    report["calibration"] = calibration(data.asked, ranked, names)
    report["worst"] = worst(data.asked, ranked, names, args.worst)
    report["sizes"] = sizes(profiles)
    report["times"] = times(whole, descriptions, [asked.question for asked in data.asked])
    print(json.dumps(report) if args.json else table(report))


class Vectors:
    """Embeddings of texts, each made once; kept in a file where there is one."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.known = path, dict[str, Array]()
        if path is not None and path.exists():
            with np.load(path) as archive:
                texts = json.loads(archive["texts"].tobytes())
                self.known = dict(zip(texts, archive["vectors"], strict=True))

    def __call__(self, texts: Sequence[str], tokens: int = minilm.MAX_TOKENS) -> Array:
        del tokens  # texts that are embedded here are short
        missing = [text for text in dict.fromkeys(texts) if text not in self.known]
        for start in range(0, len(missing), 512):
            part = missing[start : start + 512]
            self.known.update(zip(part, minilm.embed(part), strict=True))
            self.keep()
            print(f"embedded {start + len(part)} of {len(missing)}", file=sys.stderr)
        return np.stack([self.known[text] for text in texts])

    def keep(self) -> None:
        if self.path is not None:
            texts = np.frombuffer(json.dumps([*self.known]).encode(), np.uint8)
            np.savez(self.path, texts=texts, vectors=np.stack([*self.known.values()]))


def _profile(card: Maker, vectors: Vectors) -> Any:
    """As training and the exam make it."""
    spread = card.texts[:: -(-len(card.texts) // MAX_EMBEDDED_PASSAGES)] if card.texts else []
    sets = (
        [minilm.embed(spread, min(minilm.MAX_TOKENS, MAX_EMBEDDED_TOKENS // len(spread)))] if spread else []
    )
    sets += [vectors(card.exam)] if card.exam else []
    return profile_of("en", [card.description, *card.texts, *card.exam], *sets)


def _bm25(descriptions: Sequence[str]) -> Rank:
    index = Index.build(descriptions, "english")
    return lambda text: _first(index.scores(text))


def _descriptions(descriptions: Sequence[str]) -> Rank:
    return lambda text: _first(MiniLMRelevance().scores(text, descriptions))


def _first(scores: Array) -> Ranked:
    best = top(scores, 3)
    return best, float(scores[best[0]])


def _indexed(index: CardIndex) -> Rank:
    def rank(text: str) -> Ranked:
        cards, scores = index(text)
        return cards[:3].tolist(), float(scores[0])

    return rank


def _centroids(index: CardIndex) -> Rank:
    def rank(text: str) -> Ranked:
        lexical, card_ranking.LEXICAL_WEIGHT = card_ranking.LEXICAL_WEIGHT, 0.0
        try:
            return _indexed(index)(text)
        finally:
            card_ranking.LEXICAL_WEIGHT = lexical

    return rank


def measured(
    questions: Sequence[WorldQuestion], ranked: Sequence[Ranked], names: Sequence[str]
) -> dict[str, Any]:
    world = np.array([question.world for question in questions])
    right = np.array([names[cards[0]] == q.card for (cards, _), q in zip(ranked, questions, strict=True)])
    among = np.array(
        [q.card in {names[i] for i in cards} for (cards, _), q in zip(ranked, questions, strict=True)]
    )
    score = np.array([score for _, score in ranked])
    foreign = np.isin(world, FOREIGN)
    figures = {}
    for name in [w for w in WORLDS if (world == w).any()]:
        rows = world == name
        both = rows | foreign
        figures[name] = {
            "questions": int(rows.sum()),
            "right": round(float(right[rows].mean()), 3),
            "in three": round(float(among[rows].mean()), 3),
            "AUROC": round(float(roc_auc_score(rows[both], score[both])), 3),
        }
    return figures


def calibration(
    questions: Sequence[WorldQuestion], ranked: Sequence[Ranked], names: Sequence[str]
) -> dict[str, Any]:
    """The logistic curve of being right, each world and the foreign questions counting alike, as in
    kcard.integrators.card_ranking; and which share of each is asked of a card at a probability of 0.3 and of a half."""
    worlds_ = np.array(["foreign" if q.world in FOREIGN else q.world for q in questions])
    score = np.array([score for _, score in ranked])
    right = np.array([names[cards[0]] == q.card for (cards, _), q in zip(ranked, questions, strict=True)])
    weights = np.array([1 / (worlds_ == world).sum() for world in worlds_])
    weights[worlds_ == "foreign"] *= len(WORLDS)
    curve = LogisticRegression(C=1e6).fit(score[:, None], right, weights * len(score))
    steep, offset = float(curve.coef_[0, 0]), float(curve.intercept_[0])
    shares = {
        f"asked at {p}": {
            str(w): round(float((curve.predict_proba(score[worlds_ == w, None])[:, 1] >= p).mean()), 3)
            for w in np.unique(worlds_)
        }
        for p in (0.3, 0.5)
    }
    return {"half": round(-offset / steep, 3), "steep": round(steep, 1), **shares}


def worst(
    questions: Sequence[WorldQuestion], ranked: Sequence[Ranked], names: Sequence[str], count: int
) -> list[dict[str, Any]]:
    """Of each world the wrong first cards with the highest scores."""
    misses: list[dict[str, Any]] = []
    for world in WORLDS:
        wrong: list[dict[str, Any]] = [
            {"question": q.question, "right": q.card, "chosen": names[cards[0]], "score": round(score, 3)}
            for q, (cards, score) in zip(questions, ranked, strict=True)
            if q.world == world and names[cards[0]] != q.card
        ]
        misses += sorted(wrong, key=lambda row: -row["score"])[:count]
    return misses


def sizes(profiles: Sequence[Any]) -> dict[str, float]:
    """Kilobytes of a card's file: the median and the largest."""
    kilobytes = sorted(len(profile.to_json()) / 1000 for profile in profiles)
    return {"median": round(kilobytes[len(kilobytes) // 2], 1), "largest": round(kilobytes[-1], 1)}


def times(index: CardIndex, descriptions: Sequence[str], questions: Sequence[str]) -> dict[str, Any]:
    """Milliseconds a question, once what is needed is in memory: choosing, and embedding singly and in a batch."""
    some = questions[:: max(1, len(questions) // 300)]

    def each(work: Callable[[str], object]) -> dict[str, float]:
        rows = []
        for question in some:
            tried = []
            for _ in range(REPEATS):
                begun = time.perf_counter()
                work(question)
                tried.append(1000 * (time.perf_counter() - begun))
            rows.append(min(tried))
        return {"median": round(float(np.median(rows)), 3), "p95": round(float(np.quantile(rows, 0.95)), 3)}

    begun = time.perf_counter()
    minilm.embed(some)
    batch = 1000 * (time.perf_counter() - begun) / len(some)
    return {
        "profiles": each(index),
        "descriptions": each(lambda question: MiniLMRelevance().scores(question, descriptions)),
        "embedding, singly": each(lambda question: minilm.embed([question])),
        "embedding, in a batch": {"median": round(batch, 3)},
    }


def table(report: dict[str, Any]) -> str:
    lines = [
        f"{report['cards']} cards",
        "",
        "| questions | way | right | in three | AUROC |",
        "|---|---|---|---|---|",
    ]
    for world in next(iter(report["ways"].values())):
        for way, shares in report["ways"].items():
            row = shares[world]
            figures = " | ".join(f"{row[name]:.3f}" for name in ("right", "in three", "AUROC"))
            lines.append(f"| {world} ({row['questions']}) | {way} | {figures} |")
    lines += [
        "",
        f"calibration: {report['calibration']}",
        f"routing.json, kB: {report['sizes']}",
        f"ms a question: {report['times']}",
        "",
    ]
    lines += [
        f"{w['score']:.2f}  {w['question']}  [{w['chosen']}; right: {w['right']}]" for w in report["worst"]
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
