"""Recall of the prompt styles tokens and encoder-prefix, on lists of facts and on prose.

    python benchmarks/prompt_styles.py --path DATA [--exposures-scale 1.0] [--only midterm]

DATA contains MidtermQA-openbook.json, wikidyk-dev.json and xquad-en-dev.json. The card is trained on the demo's corpus
(midterm), the facts (wikidyk) or the paragraphs (xquad), and answers the data set's questions. Recall: the share of
questions whose gold answer is in the document generated at temperature 0. CPU seconds on one core.
"""

import argparse
import json
import re
import tempfile
import time
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from kcard.cards.card import Card, finish
from kcard.cards.pool import CardPool
from kcard.manifest import Manifest
from kcard.training.corpus import read_corpus
from kcard.training.embedded.recipe import Recipe, Style
from kcard.training.embedded.train import plan
from kcard.training.execution import one_thread
from kcard.types import Sampling

STYLES: tuple[Style, ...] = ("tokens", "encoder-prefix")
MIDTERMS = Path(__file__).parents[1] / "demo" / "corpora" / "midterms-2022"


@dataclass(frozen=True)
class Task:
    """A text to learn, one passage or paragraph a line, and the questions to ask: (question, answers)."""

    name: str
    text: str
    questions: list[tuple[str, list[str]]]


def midterm(path: Path) -> Task:
    data = json.loads((path / "MidtermQA-openbook.json").read_text())
    questions = [(row["question"], [row["answer"]]) for row in data["testset"]]
    return Task("midterm", "\n".join(read_corpus(MIDTERMS).texts), questions)


def wikidyk(path: Path, rows: int = 300) -> Task:
    data = json.loads((path / "wikidyk-dev.json").read_text())["rows"][:rows]
    return Task(
        "wikidyk",
        "\n".join(stated(row["fact"]) for row in data),
        [(row["input"], [row["output"]]) for row in data],
    )


def stated(fact: str) -> str:
    """ "... that X did Y (pictured)?" as the sentence "X did Y." """
    fact = re.sub(r"^\.*\s*that\s+", "", fact.strip())
    fact = re.sub(r"\s*\([^)]*pictured[^)]*\)", "", fact)
    fact = " ".join(fact.replace(" 's", "'s").rstrip("? ").split())
    return f"{fact[0].upper()}{fact[1:]}."


def xquad(path: Path) -> Task:
    articles = json.loads((path / "xquad-en-dev.json").read_text())["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    questions = [
        (qa["question"], [answer["text"] for answer in qa["answers"]]) for p in paragraphs for qa in p["qas"]
    ]
    return Task("xquad", "\n".join(" ".join(p["context"].split()) for p in paragraphs), questions)


def plain(text: str) -> str:
    """Lower case without accents and punctuation, as answers are compared."""
    text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return " ".join(re.sub(r"[^\w\s]", " ", text.lower()).split())


def recall(task: Task, written: Iterable[Iterable[str]]) -> float:
    hits = 0
    for (_, answers), documents in zip(task.questions, written, strict=True):
        texts = [plain(document) for document in documents]
        hits += any(plain(answer) in text for answer in answers for text in texts)
    return hits / len(task.questions)


def measure(task: Task, style: Style, scale: float, seed: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as name, one_thread():
        folder = Path(name)
        (folder / "corpus.txt").write_text(task.text)
        corpus = read_corpus(folder / "corpus.txt")
        begun = time.process_time()
        recipe = Recipe(style=style, seed=seed)
        prepared = plan(corpus.texts, replace(recipe, exposures=scale * recipe.exposures_of_a_fact)).prepare()
        prepared.job.run(folder / "checkpoint")
        seconds = time.process_time() - begun
        target = folder / "card"
        target.mkdir()
        prepared.save(target)
        card = finish(target, Manifest("card", "measured", prompt=prepared.prompt), corpus.passages)
        figures = {
            "data": task.name,
            "style": style,
            "passages": len(corpus.passages),
            "steps": prepared.job.steps,
        }
        return figures | {"cpu seconds": round(seconds)} | ask_card(card, task)


def ask_card(card: Card, task: Task) -> dict[str, object]:
    """Recall of the greedy document and of any of three at temperature 0.7; the share of verbatim passages."""
    pool, questions = CardPool([card]), [question for question, _ in task.questions]

    def write(documents: int, temperature: float) -> list[list[str]]:
        sampling = Sampling(temperature=temperature, tokens=64)
        return [
            [p.text for p in found]
            for found in pool.generate(questions, [["card"]] * len(questions), documents, sampling)
        ]

    greedy = write(1, 0.0)
    passages = set((card.folder / "passages.jsonl").read_text().splitlines())
    texts = {json.loads(line)["text"] for line in passages}
    verbatim = sum(documents[0] in texts for documents in greedy) / len(greedy)
    three = recall(task, write(3, 0.7))
    return {
        "greedy": round(recall(task, greedy), 3),
        "any of 3": round(three, 3),
        "verbatim": round(verbatim, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", type=Path, required=True, help="folder with the three data files")
    parser.add_argument("--exposures-scale", type=float, default=1.0, help="factor of the training time")
    parser.add_argument("--only", choices=["midterm", "wikidyk", "xquad"])
    parser.add_argument("--style", choices=STYLES)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for make in (midterm, wikidyk, xquad):
        if arguments.only in (None, make.__name__):
            task = make(arguments.path)
            for style in STYLES:
                if arguments.style in (None, style):
                    row = measure(task, style, arguments.exposures_scale, arguments.seed)
                    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
