"""Fit the verification of answers:

    python -m recipes.verification.fit --paragraphs squad-dev.jsonl.gz --answers FILE ... --features DIR [--show N]

A row of a file of answers: llm (family), manual, question, gold (alternatives, each a list of phrases), knowledge (the
passages as the LLM read them), reply, tokens (of each: text, log-probability, log-probabilities of the likeliest).

1. The weights of clauses, on claims that are known to hold or not (claims.py), about paragraphs and about the passages
   of the answers.
2. The confidence, on the answers of each family and of all together ("pooled"). An answer is right if it has all
   phrases of an alternative; to a question without gold none is.

Features are slow and are kept in --features; claims and answers that are there are not read again. Writes
integrators/verification.json, and prints cross-validation over articles and manuals: AUC, and right, wrong and admitted
by threshold.
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from kcard.integrators.claims import claim_of, without_marks
from kcard.integrators.grounds import Reading, Window, best_window, clause_features, clause_parts
from kcard.integrators.verification import (
    POOLED_FAMILY,
    WEIGHTS,
    CheckedSentence,
    answer_features,
    probability,
)
from kcard.interfaces import Pair
from kcard.llms.parsing import admits_ignorance
from kcard.selectors.factuality import verdicts
from kcard.selectors.minilm_checker import MiniLMChecker
from kcard.types import Reply, TokenScores
from recipes.verification.claims import READER, Claim, from_paragraphs, from_passages, said

FOLDS = 8
SELECTED = 0.1  # weight of a claim that was selected because the reader believes it
SUPPORTED = 0.75  # probability from which a sentence is shown as supported: nine in ten of such claims hold
WITHHELD = 0.5  # confidence below which an answer is withheld
STEPS = (0.0, 0.1, 0.2, 0.3, WITHHELD, 0.5, 0.6)
NO_WINDOW = Window(0, "", 0.0)
# What did not help, and what these claims do not tell.
UNUSED = {
    "found", "agreed", "evidence", "of another", "of the part",
}  # fmt: skip
ANSWER = (
    "span", "agreed and sure", "disagreed and sure", "relevance", "evidence", "own words", "question's words",
    "outside", "misfit", "repeats",
)  # fmt: skip
TOKENS = ("mean log-probability", "first log-probability")
UNANSWERABLE = 0.2  # share of questions without an answer, in weight
REAL = 8.0  # weight of an LLM's answer, of which there are few
ENOUGH = 40  # answers of a family of LLMs, from which it has weights of its own
ANSWERS = {
    "answer",
    "sibling",
    "elsewhere",
    "misfit",
    "question",
    READER,
}  # claims that stand for answers of an LLM
BESIDE_THE_POINT, BESIDE = (
    "sentence",
    0.3,
)  # likewise, with this weight: what the passages say, and hardly ever to the question

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--paragraphs", type=Path, required=True, help="squad-dev.jsonl.gz")
    parser.add_argument("--answers", type=Path, nargs="+", required=True)
    parser.add_argument("--features", type=Path, required=True, help="a folder")
    parser.add_argument("--show", type=int, default=0, help="answers to print, the most surprising first")
    options = parser.parse_args()
    options.features.mkdir(parents=True, exist_ok=True)
    answers = [json.loads(line) for path in options.answers for line in path.read_text().splitlines()]
    # 1. Claims.
    rng = Random(1)
    questions = {row["question"]: row for row in answers}
    claims = [*from_paragraphs(options.paragraphs, rng), *from_passages(list(questions.values()), rng)]
    claim_rows = read_claims(claims, options.features / "claims.jsonl")
    clause = fit_clauses(claim_rows)
    # 2. Answers.
    answer_rows = read_answers(answers, clause, options.features / "answers.jsonl")
    families, typical = fit_answers(answer_rows, claim_rows, clause, options.show)
    values = {
        "clause": clause,
        "families": families,
        "typical": typical,
        "supported": SUPPORTED,
        "withheld": WITHHELD,
    }
    WEIGHTS.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def read_claims(claims: Sequence[Claim], path: Path) -> list[Row]:
    """Return the features of the claims: those that are in the file, and the others, which are added to it."""
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(row["question"], row["kind"]) for row in rows}
    checker, rng = MiniLMChecker(), Random(2)
    grouped: dict[tuple[str, tuple[str, ...]], list[Claim]] = {}
    for claim in claims:
        if (claim.question, claim.kind) not in done:
            grouped.setdefault((claim.question, claim.passages), []).append(claim)
    with path.open("a", encoding="utf-8") as file:
        for (question, passages), together in grouped.items():
            reading = Reading.of(question, passages)
            parts = []
            for claim in together:
                answer = claim.answer
                if claim.kind == READER:
                    error = _readers_error(reading, claim.answer)
                    answer = said(question, error, rng) if error else ""
                window = best_window(reading, answer, frozenset()) if answer else None
                if window is not None:
                    parts.append((claim, answer, window))
            pairs = [
                Pair(claim_of(question, answer), passages[window.passage]) for _, answer, window in parts
            ]
            for (claim, answer, window), verdict in zip(parts, verdicts(checker, pairs), strict=True):
                row: Row = {"group": claim.group, "kind": claim.kind, "question": question, "answer": answer}
                row |= {"window": window.text, "y": int(claim.holds)}
                row["f"] = clause_features(reading, answer, window, verdict)
                rows.append(row)
                file.write(json.dumps(row) + "\n")
            file.flush()
    return rows


def _readers_error(reading: Reading, right: str) -> str:
    """Return the best words that the reader takes for the answer, and that are not the right ones."""
    spans = [span for passage in reading.readings for span in passage.answers]
    for span in sorted(spans, key=lambda span: -span.certainty):
        if span.text and span.text.lower() not in right.lower() and right.lower() not in span.text.lower():
            return span.text
    return ""


def fit_clauses(rows: Sequence[Row]) -> dict[str, float]:
    """Return the weights. The printed precision is that of claims which were not selected by the reader's errors, since
    those of an LLM are others."""
    names = [name for name in rows[0]["f"] if name not in UNUSED]
    table = np.array([[row["f"][name] for name in names] for row in rows])
    holds = np.array([row["y"] for row in rows])
    kinds = np.array([row["kind"] for row in rows])
    weights = np.where(kinds == READER, SELECTED, 1.0)
    chances = validate(table, holds, [row["group"] for row in rows], weights)
    print(f"{len(rows)} claims: {dict(Counter(kinds))}; AUC {area(holds, chances):.3f}")
    for candidate in np.arange(0.5, 0.95, 0.05):
        shown = chances >= candidate
        precision = float(holds[shown & (kinds != READER)].mean())
        recall = holds[shown].sum() / holds.sum()
        by_kind = {
            str(kind): f"{(shown & (kinds == kind)).sum()}/{(kinds == kind).sum()}" for kind in set(kinds)
        }
        print(f"supported from {candidate:.2f}: precision {precision:.3f}, recall {recall:.3f}, {by_kind}")
    return fit(table, holds, names, weights)


def read_answers(answers: Sequence[Row], clause: Mapping[str, float], path: Path) -> list[Row]:
    """Return the answers with the features of their sentences and of the whole; those of clauses are kept in `path`."""
    kept = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    known = {(row["llm"], row["manual"], row["question"]): row for row in kept}
    checker = MiniLMChecker()
    rows = []
    with path.open("a", encoding="utf-8") as file:
        for row in answers:
            key = row["llm"], row["manual"], row["question"]
            text, sentences = without_marks(row["reply"].strip(), row["knowledge"])
            found = known.get(key)
            reading = Reading.of(row["question"], row["knowledge"])
            if found is None:
                parts = clause_parts(reading, sentences)
                pairs = [
                    Pair(
                        claim_of(reading.question, part),
                        reading.texts[window.passage],
                    )
                    for _, part, window in parts
                ]
                features = [
                    [sentence.text, clause_features(reading, part, window, verdict)]
                    for (sentence, part, window), verdict in zip(parts, verdicts(checker, pairs), strict=True)
                ]
                found = {"llm": key[0], "manual": key[1], "question": key[2], "clauses": features}
                file.write(json.dumps(found) + "\n")
                file.flush()
            weakest: dict[str, CheckedSentence] = {}
            for sentence, values in found["clauses"]:
                holding = probability(values, clause)
                if sentence not in weakest or holding < weakest[sentence].probability:
                    weakest[sentence] = CheckedSentence(sentence, values, reading.windows[0], holding)
            tokens = tuple(TokenScores(own, 0.0, 0.0) for _, own, _ in row.get("tokens") or ())
            reply = Reply(row["reply"], tokens=tokens or None)
            is_known = bool(weakest) and not admits_ignorance(row["reply"])
            rows.append(
                row
                | {"text": text, "known": is_known, "right": is_known and is_right(text, row["gold"])}
                | {"f": answer_features(list(weakest.values()), reply) if weakest else {}}
                | {"support": [(s.text, round(s.probability, 3)) for s in weakest.values()]}
            )
    return rows


def is_right(text: str, gold: Sequence[Sequence[str]]) -> bool:
    """Return whether the text has all phrases of an alternative."""
    plain = _plain(text)
    return any(all(_plain(phrase) in plain for phrase in phrases) for phrases in gold)


def _plain(text: str) -> str:
    return " ".join(re.sub(r"[`*_]", "", text).lower().split())


def fit_answers(
    rows: Sequence[Row], claims: Sequence[Row], clause: Mapping[str, float], show: int
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Return the weights of each family, and the usual values of what an LLM may not tell.

    The pooled weights are fitted on all answers and, as there are few, on those claims that are like answers.
    """
    known = [row for row in rows if row["known"]]
    alike = []
    for claim in claims:
        if claim["kind"] in {*ANSWERS, BESIDE_THE_POINT}:
            checked = CheckedSentence(claim["answer"], claim["f"], NO_WINDOW, probability(claim["f"], clause))
            weight = {READER: SELECTED, BESIDE_THE_POINT: BESIDE}.get(claim["kind"], 1.0)
            alike.append({"manual": claim["group"], "right": claim["kind"] == "answer", "weight": weight})
            alike[-1]["f"] = answer_features([checked], Reply(""))
    # As many right ones as wrong ones, in weight.
    share = sum(r["weight"] for r in alike if not r["right"]) / sum(r["right"] for r in alike)
    for row in alike:
        row["weight"] *= share if row["right"] else 1.0
    answerable = sum(bool(row["gold"]) for row in rows)
    factor = UNANSWERABLE / (1 - UNANSWERABLE) * answerable / max(1, len(rows) - answerable)
    for row in known:
        row["weight"] = REAL * (1.0 if row["gold"] else factor)
    rated = alike + known
    table = np.array([[row["f"][name] for name in ANSWER] for row in rated])
    right = np.array([row["right"] for row in rated])
    weights = np.array([row["weight"] for row in rated])
    groups = [row["manual"] for row in rated]
    chances = validate(table, right, groups, weights)
    split = len(alike)
    print(f"\npooled: {split} claims like answers, AUC {area(right[:split], chances[:split]):.3f}")
    print(f"{len(known)} answers, AUC {area(right[split:], chances[split:]):.3f}")
    families = {POOLED_FAMILY: fit(table, right, ANSWER, weights)}
    print(_by_threshold(rows, known, chances[len(alike) :]))
    # What each LLM tells of itself, beside the pooled log-odds.
    typical = {}
    for name in TOKENS:
        told = [row["f"][name] for row in known if name in row["f"]]
        typical[name] = round(float(np.mean(told)), 4) if told else 0.0
    for row, chance in zip(known, chances[len(alike) :], strict=True):
        row["pooled chance"] = float(chance)
    for family in sorted({row["llm"] for row in known}):
        own = [row for row in known if row["llm"] == family]
        right = np.array([row["right"] for row in own])
        if len(own) < ENOUGH or not 0.1 < right.mean() < 0.9:
            print(f"{family}: {len(own)} answers, of which {right.sum()} are right, are too few")
            continue
        log_odds = np.array([np.log(row["pooled chance"] / (1 - row["pooled chance"])) for row in own])
        tokens = np.array([[{**typical, **row["f"]}[name] for name in TOKENS] for row in own])
        # The probabilities of the tokens count if they help.
        groups, weights = [row["manual"] for row in own], np.array([row["weight"] / REAL for row in own])
        names, best = [POOLED_FAMILY], validate(log_odds[:, None], right, groups, weights)
        both = validate(np.column_stack([log_odds, tokens]), right, groups, weights)
        print(
            f"\n{family}: {len(own)} answers; AUC {area(right, best):.3f}, with tokens {area(right, both):.3f}"
        )
        if area(right, both) > area(right, best) + 0.01:
            names, best = [POOLED_FAMILY, *TOKENS], both
        print(_by_threshold([row for row in rows if row["llm"] == family], own, best))
        families[family] = fit(np.column_stack([log_odds, tokens])[:, : len(names)], right, names, weights)
    surprising = sorted(known, key=lambda row: -abs(row["pooled chance"] - row["right"]))
    for row in surprising[:show]:
        print(
            f"{row['pooled chance']:.2f} {row['right']} {row['question']} -> {row['support'][:3]} {row['gold'][:2]}"
        )
    return families, typical


def _by_threshold(rows: Sequence[Row], known: Sequence[Row], chances: "np.ndarray[Any, Any]") -> str:
    """Return how many answers are right, wrong, and rightly admitted to be unknown, by the confidence from which they
    are shown."""
    right = np.array([row["right"] for row in known], dtype=bool)
    admitted = [row for row in rows if not row["known"]]
    empty = sum(not row["gold"] for row in rows)
    lines = [f"{len(rows)} answers of LLMs, {len(admitted)} admitted by them"]
    for threshold in STEPS:
        shown = chances >= threshold
        hidden = admitted + [row for row, is_shown in zip(known, shown, strict=True) if not is_shown]
        none = sum(not row["gold"] for row in hidden)
        lines.append(
            f"from {threshold:.2f}: right {right[shown].sum()}, wrong {(~right[shown]).sum()}, "
            f"admitted {none} of {empty} without an answer"
        )
    strict = np.array([all(chance >= SUPPORTED for _, chance in row["support"]) for row in known], dtype=bool)
    strict &= chances >= WITHHELD
    hidden = admitted + [row for row, is_shown in zip(known, strict, strict=True) if not is_shown]
    none = sum(not row["gold"] for row in hidden)
    lines.append(
        f"strict: right {right[strict].sum()}, wrong {(~right[strict]).sum()}, admitted {none} of {empty}"
    )
    return "\n".join(lines)


def fit(
    table: "np.ndarray[Any, Any]", truth: "np.ndarray[Any, Any]", names: Sequence[str], weights: Any = None
) -> dict[str, float]:
    """Return the weights of a logistic regression on the features as they are, with the bias."""
    mean, scale = table.mean(0), table.std(0) + 1e-9
    model = _model().fit((table - mean) / scale, truth, sample_weight=weights)
    own = model.coef_[0] / scale
    bias = float(model.intercept_[0] - (own * mean).sum())
    return {"bias": round(bias, 4)} | {n: round(float(w), 4) for n, w in zip(names, own, strict=True)}


def validate(table: Any, truth: Any, groups: Sequence[str], weights: Any = None) -> "np.ndarray[Any, Any]":
    """Return the probability of each row by a regression that has not seen its group."""
    from sklearn.model_selection import GroupKFold

    chances = np.zeros(len(truth))
    folds = min(FOLDS, len(set(groups)))
    for train, test in GroupKFold(folds).split(table, truth, groups):
        mean, scale = table[train].mean(0), table[train].std(0) + 1e-9
        own = None if weights is None else weights[train]
        model = _model().fit((table[train] - mean) / scale, truth[train], sample_weight=own)
        chances[test] = model.predict_proba((table[test] - mean) / scale)[:, 1]
    return chances


def _model() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=1.0, max_iter=2000)


def area(truth: Any, chances: Any) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(truth, chances))


if __name__ == "__main__":
    main()
