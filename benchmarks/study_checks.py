"""What the checks of study material keep of the implications that GPT-4.1 wrote, and why not the others.

    python -m benchmarks.study_checks --path reading/squad-dev.jsonl.gz [--lines 600] [--show 40]

Of the implications in SEAL's data (`gpt41`), which have chat and headings among them, some lines are drawn with the
seed and each is checked against its paragraph, as `kcard study` checks an implication. `--show` prints lines that are
left out, with their support and their paragraphs, to be judged by a person.
"""

import argparse
import gzip
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

from benchmarks.study import LEAST, NUMBERING
from kcard.llms.reader import SpanReader
from kcard.selectors.registry import Loading, checker
from kcard.training.study.checks import SUPPORTED, checked
from kcard.training.study.item import StudyItem


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", type=Path, required=True, help="squad-dev.jsonl.gz")
    parser.add_argument("--lines", type=int, default=600)
    parser.add_argument("--show", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    found = lines(args.path)
    drawn = Random(args.seed).sample(found, min(args.lines, len(found)))
    judge, reader, counts, shown = checker("minilm", Loading()), SpanReader(), Counter[str](), list[str]()
    for line, paragraph in drawn:
        item = StudyItem("implication", line)
        result = checked(item, [paragraph], judge, reader, "en")
        if isinstance(result, str):
            counts[result] += 1
            shown.append(f"{result}: {line}\n    {paragraph}")
        else:
            sure = (result.support or 0) >= SUPPORTED
            counts[f"kept, support {'from' if sure else 'below'} {SUPPORTED}"] += 1
    print(f"{len(drawn):,} of {len(found):,} lines\n\n| | lines |\n|---|---|")
    print("\n".join(f"| {why} | {count} |" for why, count in counts.most_common()))
    print("\n".join(["", *shown[: args.show]]))


def lines(path: Path) -> Sequence[tuple[str, str]]:
    """Each line of the implications, without its number, and its paragraph."""
    with gzip.open(path, "rt", encoding="utf-8") as opened:
        rows = [row for row in map(json.loads, opened) if row.get("gpt41")]
    found = []
    for row in rows:
        said = row["gpt41"] if isinstance(row["gpt41"], list) else [row["gpt41"]]
        found += [
            (NUMBERING.sub("", line).strip(), row["context"]) for text in said for line in text.splitlines()
        ]
    return [(line, paragraph) for line, paragraph in found if len(line) >= LEAST]


if __name__ == "__main__":
    main()
