"""Child processes of benchmarks/laptop.py: questions to a card, and plain search over the same passages.

    python -P benchmarks/laptop_search.py ask QUESTIONS.json --card NAME
    python -P benchmarks/laptop_search.py plain-index PASSAGES.jsonl FOLDER --encoder FOLDER
    python -P benchmarks/laptop_search.py plain-ask QUESTIONS.json FOLDER --encoder FOLDER [--cold]

Plain search is what a user would write: sentence-transformers with all-MiniLM-L6-v2 and bm25s, with both scores divided
by their maximum and added. It returns the three best passages; a card also answers with one of their sentences. `ask`
and `plain-ask` answer the first question, then the others one by one, then all as a batch, and print {"warm": [CPU
seconds, wall seconds] per question, "batch": the same per question of the batch}; with `--cold`, they answer only the
first question.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

BEST = 3  # passages


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=("ask", "plain-index", "plain-ask"))
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--card")
    parser.add_argument("--encoder")
    parser.add_argument("--cold", action="store_true")
    args = parser.parse_args()
    if args.action == "plain-index":
        index(args.source, args.folder, args.encoder)
        return
    questions = json.loads(args.source.read_text(encoding="utf-8"))
    answer = card_of(args.card) if args.action == "ask" else search_of(args.folder, args.encoder)
    answer(questions[:1])
    if not args.cold:
        print(
            json.dumps({"warm": one_by_one(answer, questions[1:]), "batch": at_once(answer, questions[1:])})
        )


def one_by_one(answer: Callable[[Sequence[str]], object], questions: Sequence[str]) -> tuple[float, float]:
    """CPU and wall seconds of a question."""
    return measured(lambda: [answer([question]) for question in questions], len(questions))


def at_once(answer: Callable[[Sequence[str]], object], questions: Sequence[str]) -> tuple[float, float]:
    """The same, of a question of a batch; each is worded anew, so that nothing is remembered of it."""
    return measured(lambda: answer([f"Tell me: {question}" for question in questions]), len(questions))


def measured(run: Callable[[], object], count: int) -> tuple[float, float]:
    processor, wall = time.process_time(), time.perf_counter()
    run()
    return (time.process_time() - processor) / count, (time.perf_counter() - wall) / count


def card_of(name: str) -> Callable[[Sequence[str]], object]:
    import kcard

    pipeline: Callable[[Sequence[str]], object] = kcard.Pipeline(kcard.AskOptions(cards=name, gate="always"))
    return pipeline


def index(passages: Path, folder: Path, encoder: str) -> None:
    """Embed the passages, index their words and save both."""
    import bm25s
    import numpy as np
    from sentence_transformers import SentenceTransformer

    rows = [json.loads(line) for line in passages.read_text(encoding="utf-8").splitlines()]
    texts = [row["text"] for row in rows]
    folder.mkdir()
    np.save(
        folder / "vectors.npy",
        SentenceTransformer(encoder, device="cpu", trust_remote_code=False).encode(texts),
    )
    words = bm25s.BM25()
    words.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    words.save(folder / "words")
    (folder / "texts.json").write_text(json.dumps(texts), encoding="utf-8")


def search_of(folder: Path, encoder: str) -> Callable[[Sequence[str]], list[list[str]]]:
    import bm25s
    import numpy as np
    from sentence_transformers import SentenceTransformer

    model: Any = SentenceTransformer(encoder, device="cpu", trust_remote_code=False)
    vectors = np.load(folder / "vectors.npy")
    words = bm25s.BM25.load(folder / "words")
    texts = json.loads((folder / "texts.json").read_text(encoding="utf-8"))

    def search(questions: Sequence[str]) -> list[list[str]]:
        near = model.encode(list(questions)) @ vectors.T
        tokens = bm25s.tokenize(list(questions), return_ids=False, show_progress=False)
        best = []
        for similarities, row in zip(near, tokens, strict=True):
            shared = words.get_scores(row) if row else np.zeros(len(texts))
            scores = similarities / max(similarities.max(), 1e-9) + shared / max(shared.max(), 1e-9)
            best.append([texts[place] for place in np.argsort(-scores)[:BEST]])
        return best

    return search


if __name__ == "__main__":
    main()
