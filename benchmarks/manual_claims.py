"""The fact checker on sentences of manuals: does it tell a claim that a sentence bears out from one that it does not?

    python -m benchmarks.manual_claims --path DIR

240 claims about manuals that Debian packages and an npm package bring (manual_claims.jsonl, written for kcard), each
with the sentence to judge it by, a third parted by a name, a third by a negation, a third by another fact. DIR holds
the packages of recipes/reader/questions, unpacked. Prints the AUC of the score for each kind and the worst claims.
"""

import argparse
import json
from pathlib import Path

from recipes.checker.manuals import Sentences

from kcard.protocols import Pair
from kcard.selectors.checker import MiniLMChecker

CLAIMS = Path(__file__).parent / "manual_claims.jsonl"


def main() -> None:
    from sklearn.metrics import roc_auc_score

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", type=Path, required=True, help="folder of unpacked packages")
    parser.add_argument("--weights", type=Path, help="of another checker")
    parser.add_argument("--worst", type=int, default=5)
    options = parser.parse_args()
    sentences = Sentences(options.path)
    rows = [json.loads(line) for line in CLAIMS.read_text(encoding="utf-8").splitlines()]
    told = [(row, evidence) for row in rows if (evidence := sentences.of(row))]
    checker = MiniLMChecker(weights=options.weights) if options.weights else MiniLMChecker()
    scores = checker.support([Pair(row["claim"], evidence) for row, evidence in told])
    print(f"{len(told)} of {len(rows)} claims, the sentences of the others were not found\n")
    print("| kind | claims | AUC |\n|---|---|---|")
    for kind in ("name", "negation", "fact", ""):
        chosen = [at for at, (row, _) in enumerate(told) if row["kind"].startswith(kind)]
        truth = [told[at][0]["supported"] for at in chosen]
        auc = roc_auc_score(truth, [scores[at] for at in chosen])
        print(f"| {kind or 'all'} | {len(chosen)} | {auc:.3f} |")
    wrong = sorted(range(len(told)), key=lambda at: -abs(scores[at] - told[at][0]["supported"]))
    for at in wrong[: options.worst]:
        row, evidence = told[at]
        print(f"- {scores[at]:.2f} {row['claim']} | {evidence}")


if __name__ == "__main__":
    main()
