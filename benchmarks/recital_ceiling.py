"""How many answers could a card's document hold, if the retriever that teaches it chose where to begin?

    python -m benchmarks.recital_ceiling --path xquad-en-dev.json [--tokens 100 160] [--json]

Nothing is trained. A document begins with the statement that the retriever (cosine of the sentence embeddings and BM25)
likes best, and goes on with nothing, with the next statement of the passage, with the one of the passage or of the
corpus that the retriever likes second, or with all that follow in the passage. It ends after so many tokens of the
card's vocabulary, one of them for each docid. The share of people's questions whose answer it holds.
"""

import argparse
import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.recall import Question, holds, rows, share
from benchmarks.xquad import read
from kcard.answer import Source
from kcard.cards.lm.word_sketch import WordSketch
from kcard.encoder import embed
from kcard.training.asked import QuestionWords, Retriever
from kcard.training.corpus import read_corpus
from kcard.training.recipe import Recipe
from kcard.training.tokenizer import train_tokenizer

COLUMNS = ("tokens", "alone", "next", "all that follow", "second of the passage", "second of all")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", type=Path, required=True, help="xquad-en-dev.json")
    parser.add_argument("--tokens", type=int, nargs="+", default=[100])
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    paragraphs, questions = read(args.path)
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Path(scratch, "paragraphs.txt")
        corpus.write_text("".join(f"{paragraph}\n" for paragraph in paragraphs), encoding="utf-8")
        statements = read_corpus(corpus).statements
    order = ranked(statements, questions)
    written = Written([statement.text for statement in statements])
    found = [
        {"tokens": tokens} | {name: held(written, rows_, questions, tokens) for name, rows_ in order.items()}
        for tokens in args.tokens
    ]
    print(json.dumps(found) if args.json else rows(COLUMNS, found))


def ranked(statements: Sequence[Source], questions: Sequence[Question]) -> dict[str, list[list[int]]]:
    """By way of going on, which statements the document of each question is made of."""
    import torch

    texts, asked = [statement.text for statement in statements], [question.text for question in questions]
    sketch, vectors = WordSketch.of_corpus(texts), torch.from_numpy(embed(texts))
    words = QuestionWords(sketch, asked).thinned(torch.arange(len(asked)), (0.0, 0.0))
    cosine = torch.from_numpy(embed(asked)) @ vectors.T
    scores = cosine + Recipe.lexical * Retriever(sketch, texts, vectors).bm25(words)
    of = [(statement.file, statement.line) for statement in statements]
    best: list[list[int]] = scores.argsort(dim=1, descending=True).tolist()
    follow = [[row for row in range(first, len(of)) if of[row] == of[first]] for first, *_ in best]
    siblings = [[row for row in row_ if of[row] == of[row_[0]]] for row_ in best]
    return {
        "alone": [row_[:1] for row_ in best],
        "next": [row_[:2] for row_ in follow],
        "all that follow": follow,
        "second of the passage": [row_[:2] for row_ in siblings],
        "second of all": [row_[:2] for row_ in best],
    }


class Written:
    """Documents of statements, in the card's tokens."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.tokenizer = train_tokenizer(texts, Recipe.vocabulary)
        self.ids = self.tokenizer(list(texts), add_special_tokens=False)["input_ids"]

    def __call__(self, statements: Iterable[int], tokens: int) -> str:
        texts = []
        for row in statements:
            tokens -= 1
            texts.append(str(self.tokenizer.decode(self.ids[row][: max(0, tokens)])))
            tokens -= len(self.ids[row])
        return " ".join(texts)


def held(
    written: Written, order: Sequence[Sequence[int]], questions: Sequence[Question], tokens: int
) -> float:
    return share(
        holds(written(row_, tokens), question) for row_, question in zip(order, questions, strict=True)
    )


if __name__ == "__main__":
    main()
