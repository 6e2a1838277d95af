"""Do cards write whole sentences? The share of documents that begin in mid-sentence or are cut off.

    python -m benchmarks.documents --path DATA [--only xquad] [--style tokens] [--without-docids] [--card FOLDER]

DATA holds MidtermQA-openbook.json, wikidyk-dev.json and xquad-en-dev.json. A card learns each of the three as in
prompt_styles.py and is asked the data's own questions, greedily and at temperatures .1 and .7, with a limit of 100 and
of 40 tokens. `--without-docids` trains as before cards had docids (training/docids.py); `--card` measures a
card that was trained before, on the data of `--only`.

    begins   the document begins as no passage does: in lower case, or with words that the corpus has within a sentence
             only (which a whole sentence may do too, so this counts rather too many)
    cut off  it ends without a mark that ends sentences, and no passage ends as it does
    whole    it is a passage of the corpus, word for word
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.prompt_styles import STYLES, Task, midterm, wikidyk, xquad
from benchmarks.recall import rows, share
from kcard.cards.format.document import CLOSING, ENDS
from kcard.cards.format.folder import Card, finish, passages
from kcard.cards.pool import Pool
from kcard.manifest import Manifest
from kcard.sampling import Sampling
from kcard.training.corpus import read_corpus
from kcard.training.embedded import plan
from kcard.training.loop import run
from kcard.training.recipe import Recipe, Style, choose_style
from kcard.training.threads import one_thread

COLUMNS = ("data", "style", "docids", "tokens", "temperature", "begins", "cut off", "either", "whole")
HEAD = 16


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", type=Path, required=True, help="folder with the three data files")
    parser.add_argument("--only", choices=["midterm", "wikidyk", "xquad"])
    parser.add_argument("--style", choices=STYLES, help="default: the one that training chooses")
    parser.add_argument("--without-docids", action="store_true")
    parser.add_argument("--card", type=Path, help="a trained card; say its data with --only")
    parser.add_argument(
        "--limit", type=int, default=505, help="ask about so many questions of each (default: 505)"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found: list[dict[str, Any]] = []
    for make in (midterm, wikidyk, xquad):
        if arguments.only in (None, make.__name__):
            task = make(arguments.path)
            with tempfile.TemporaryDirectory() as scratch:
                card = (
                    Card.open(arguments.card)
                    if arguments.card
                    else learned(task, arguments.style, not arguments.without_docids, Path(scratch))
                )
                found += measured(card, task, arguments.limit)
    print(json.dumps(found) if arguments.json else rows(COLUMNS, found))


def learned(task: Task, style: Style | None, docids: bool, folder: Path) -> Card:
    (folder / "corpus.txt").write_text(task.text)
    corpus = read_corpus(folder / "corpus.txt")
    recipe = Recipe(style=style or choose_style(corpus.texts)[0])
    if not docids:
        recipe = Recipe(style=recipe.style, docids=0)
    with one_thread():
        prepared = plan(corpus.texts, recipe).prepare()
        run(prepared.job, folder / "checkpoint")
    made = folder / "card"
    made.mkdir()
    prepared.save(made)
    return finish(made, Manifest("card", "measured", prompt=prepared.prompt), corpus.passages)


def measured(card: Card, task: Task, limit: int) -> Iterator[dict[str, Any]]:
    asked = [question for question, _ in task.questions[:: max(1, len(task.questions) // limit)]]
    pool, texts = Pool([card]), Texts.of([source.text for source in passages(card.folder)])
    vocabulary = json.loads((card.folder / "config.json").read_text())["vocab_size"]
    tokens = len(json.loads((card.folder / "tokenizer.json").read_text())["model"]["vocab"])
    for most in (100, 40):
        for temperature, count in ((0.0, 1), (0.1, 3), (0.7, 3)):
            sampling = Sampling(temperature=temperature, tokens=most)
            written = pool.write(asked, [card.name], count, sampling)
            documents = [passage.text for found in written for passage in found]
            yield {
                "data": task.name,
                "style": card.manifest.prompt.style,
                "docids": "yes" if vocabulary > tokens else "no",
                "tokens": most,
                "temperature": temperature,
                "begins": share(texts.begins_within(d) for d in documents),
                "cut off": share(texts.is_cut(d) for d in documents),
                "either": share(texts.begins_within(d) or texts.is_cut(d) for d in documents),
                "whole": share(d in texts.whole for d in documents),
            }


@dataclass(frozen=True)
class Texts:
    """The corpus, to tell whether a document begins and ends as its passages do."""

    whole: frozenset[str]
    heads: frozenset[str]
    tails: frozenset[str]
    joined: str

    @classmethod
    def of(cls, texts: Sequence[str]) -> "Texts":
        heads, tails = (text[:HEAD] for text in texts), (text[-HEAD:] for text in texts)
        return cls(frozenset(texts), frozenset(heads), frozenset(tails), "\n".join(texts))

    def begins_within(self, document: str) -> bool:
        head = document[:HEAD]
        if head in self.heads:
            return False
        first = next((letter for letter in document if letter.isalpha()), "")
        at = self.joined.find(head)
        before = self.joined[:at].rstrip().rstrip(CLOSING)[-1:] if at > 0 else ""
        return first.islower() or (bool(before) and before not in ENDS and self.joined[at - 1] != "\n")

    def is_cut(self, document: str) -> bool:
        return not document.rstrip(CLOSING).endswith(ENDS) and document[-HEAD:] not in self.tails


if __name__ == "__main__":
    main()
