"""Accuracy of the fact checker on claims about manuals.

    python -m benchmarks.manual_claims --path DIR [--search]

240 claims about manuals in Debian packages and an npm package (manual_claims.jsonl, written for kcard): true and false
ones that differ in a name (a third), a negation (a third) or another fact. Each is checked against its sentence or,
with `--search`, against the three passages found in its file of the manual, as by `kcard check`. DIR contains the
unpacked packages of recipes/reader/questions. Prints the AUC of the score and the share of correct verdicts for each
kind, and the worst claims.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recipes.checker.manuals import Sentences

from kcard.api.check import SEARCH_RESULTS, decisive_place, verdict_of
from kcard.evaluation.records import Mean
from kcard.interfaces import Pair, Verdict
from kcard.selectors.evidence import CorpusEvidence
from kcard.selectors.minilm_checker import MiniLMChecker
from kcard.types import Source

CLAIMS = Path(__file__).parent / "manual_claims.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", type=Path, required=True, help="folder of unpacked packages")
    parser.add_argument("--search", action="store_true", help="judge by what is found in the claim's file")
    parser.add_argument("--weights", type=Path, help="of another checker")
    parser.add_argument("--worst", type=int, default=5)
    options = parser.parse_args()
    sentences = Sentences(options.path)
    rows = [json.loads(line) for line in CLAIMS.read_text(encoding="utf-8").splitlines()]
    read = _searched if options.search else _sentence
    texts = [(row, read(sentences, row)) for row in rows]
    texts = [(row, evidence) for row, evidence in texts if evidence]
    checker = MiniLMChecker(weights=options.weights) if options.weights else MiniLMChecker()
    judged = [_judged(checker, row["claim"], evidence) for row, evidence in texts]
    print(f"{len(texts)} of {len(rows)} claims, the texts of the others were not found\n")
    _print([row for row, _ in texts], judged)
    wrong = sorted(range(len(texts)), key=lambda at: -abs(judged[at].score - texts[at][0]["supported"]))
    for at in wrong[: options.worst]:
        print(f"- {judged[at].score:.2f} {texts[at][0]['claim']} | {judged[at].window}")


def _sentence(sentences: Sentences, row: Mapping[str, Any]) -> list[str]:
    evidence = sentences.of(row)
    return [evidence] if evidence else []


def _searched(sentences: Sentences, row: Mapping[str, Any]) -> list[str]:
    passages = [Source(text) for text in sentences.passages(row["manual"], row["file"]) if text.strip()]
    sources = CorpusEvidence(passages).find(row["claim"], SEARCH_RESULTS) if passages else []
    return [source.in_context for source in sources]


def _judged(checker: MiniLMChecker, claim: str, evidence: Sequence[str]) -> Verdict:
    judged = checker.judge([Pair(claim, text) for text in evidence])
    return judged[decisive_place(claim, judged)]


def _print(rows: Sequence[Mapping[str, Any]], judged: Sequence[Verdict]) -> None:
    from sklearn.metrics import roc_auc_score

    print("| kind | claims | AUC | right | true: supported | false: refuted | false: not covered |")
    print("|---|---|---|---|---|---|---|")
    verdicts = [verdict_of(verdict.score, verdict.refutation) for verdict in judged]
    for kind in ("name", "negation", "fact", ""):
        chosen = [at for at, row in enumerate(rows) if row["kind"].startswith(kind)]
        truth = [bool(rows[at]["supported"]) for at in chosen]
        right = [(verdicts[at] == "supported") == told for at, told in zip(chosen, truth, strict=True)]
        auc = roc_auc_score(truth, [judged[at].score for at in chosen])

        true = [verdicts[at] for at, told in zip(chosen, truth, strict=True) if told]
        false = [verdicts[at] for at, told in zip(chosen, truth, strict=True) if not told]
        counts = ((true, "supported"), (false, "refuted"), (false, "not covered"))
        shares = " | ".join(f"{said.count(verdict) / len(said):.2f}" for said, verdict in counts)
        print(
            f"| {kind or 'all'} | {len(chosen)} | {auc:.3f} | {Mean.of([float(r) for r in right])} | {shares} |"
        )


if __name__ == "__main__":
    main()
