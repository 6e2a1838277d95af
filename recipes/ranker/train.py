"""Train the ranker: python -m recipes.ranker.train --data DATA --output src/kcard/embedded/weights/ranker

The first three layers of the embedded reader and a head are trained on human questions (listed in
recipes.static.train): a question's passage should score higher than hard negatives found by words and by static
embeddings (a softmax over them; Gao, Dai and Callan, 2021, "Rethink Training of BERT Rerankers"). `--seconds` is CPU
time; the learning rate falls to zero by then.
"""

import argparse
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kcard.embedded import minilm
from kcard.embedded import static_embeddings as static
from kcard.embedded.reader import LAYERS, READER_WEIGHTS, pair_tokens
from kcard.index import Index
from kcard.training.execution import autocast
from recipes.digests import write_digests
from recipes.padding import padded
from recipes.quantisation import layers_of
from recipes.reader.network import untrained
from recipes.static.train import Pair, read

if TYPE_CHECKING:
    from torch import Tensor

RATE, HEAD_RATE, WARM = 1e-4, 1e-3, 0.05
NEGATIVES = 7
DEPTH = 20  # first candidates that wrong passages are drawn from
QUESTIONS = 12  # a batch
WINDOW = 64  # tokens of a passage
RECORD = """---
license: cc-by-sa-4.0
language: en
base_model: sentence-transformers/all-MiniLM-L6-v2
base_model_relation: finetune
---

# kcard's ranker

The first three layers of kcard's reader, whose base is sentence-transformers/all-MiniLM-L6-v2 (sha256
{sha256}, Apache-2.0), trained further. They read
`[CLS] question [SEP] 64 tokens of a passage [SEP]`, and a head scores how likely the passage answers. The embeddings
are the base's; the matrices are in steps of 7 bits.

Made by `python -m recipes.ranker.train --seconds {budget} --seed {seed}`: {steps} steps of {questions} questions with
{passages} passages each, {seconds} CPU seconds. Training data and their licences:
src/kcard/embedded/weights/static/README.md, and src/kcard/embedded/weights/reader/README.md for the layers that it
began with.
"""


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with questions/")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=1500.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    rng = random.Random(options.seed)
    model, head = fresh()
    steps, seconds = train(model, head, batches(read(options.data, rng), rng), options.seconds)
    options.output.mkdir(parents=True, exist_ok=True)
    save(model, head, options.output)
    facts = {
        "budget": round(options.seconds),
        "seed": options.seed,
        "steps": steps,
        "seconds": round(seconds),
    }
    facts |= {"questions": QUESTIONS, "passages": NEGATIVES + 1}
    record = RECORD.format(sha256=minilm.SHA256, **facts)
    (options.output / "README.md").write_text(record, encoding="utf-8")
    write_digests(options.output)


def fresh() -> "tuple[Any, Any]":
    """The encoder's first layers, to be trained but for the embeddings, and an untrained head."""
    import torch

    model = untrained(READER_WEIGHTS, 0.1).model
    model.encoder.layer = model.encoder.layer[:LAYERS]
    model.embeddings.requires_grad_(False)
    return model, torch.nn.Linear(2 * minilm.DIMENSIONS, 1)


def batches(pairs: Sequence[Pair], rng: random.Random) -> Iterator[list[tuple[str, list[str]]]]:
    """QUESTIONS questions at a time, each with its passage first and NEGATIVES others of the same source."""
    sources: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        sources[pair.source].append(pair)
    pools = {name: Pool([pair.passage for pair in rows]) for name, rows in sources.items()}
    while True:
        order = rng.sample(range(len(pairs)), len(pairs))
        for start in range(0, len(order) - QUESTIONS, QUESTIONS):
            chosen = [pairs[i] for i in order[start : start + QUESTIONS]]
            yield [(p.question, [p.passage, *pools[p.source].wrong(p, rng)]) for p in chosen]


class Pool:
    """The passages of a source, to draw wrong ones from."""

    def __init__(self, passages: Sequence[str]) -> None:
        self.passages = list(dict.fromkeys(passages))
        self.index = Index.build(self.passages, "english")
        self.vectors = static.embed(self.passages)

    def wrong(self, pair: Pair, rng: random.Random) -> list[str]:
        """Passages that come first for the question and neither are its own nor hold its answer."""
        possible = self.index.best_possible(pair.question) or 1.0
        scores = self.index.scores(pair.question) / possible
        scores = scores + self.vectors @ static.embed([pair.question])[0]
        first = np.argpartition(-scores, min(DEPTH + 10, len(scores) - 1))[: DEPTH + 10]
        core = pair.passage[-100:]
        others = [self.passages[i] for i in first[np.argsort(-scores[first])]]
        others = [
            p for p in others if core not in p and not (pair.answer and pair.answer.lower() in p.lower())
        ]
        return rng.sample(others[:DEPTH], min(NEGATIVES, len(others[:DEPTH])))


def train(
    model: Any, head: Any, examples: Iterator[list[tuple[str, list[str]]]], seconds: float
) -> tuple[int, float]:
    """Train for so many CPU seconds; the steps done and the seconds taken."""
    import torch
    from torch.nn.functional import cross_entropy

    body = [weight for weight in model.parameters() if weight.requires_grad]
    groups = [{"params": body, "peak": RATE}, {"params": [*head.parameters()], "peak": HEAD_RATE}]
    optimiser = torch.optim.AdamW(groups, lr=RATE, weight_decay=0.01)
    model.train()
    began, steps, recent = time.process_time(), 0, 0.0
    while (done := (time.process_time() - began) / seconds) < 1:
        for group in optimiser.param_groups:
            group["lr"] = group["peak"] * min(1.0, done / WARM + 0.01) * (1 - done)
        batch = next(examples)
        scores = score(model, head, [(question, text) for question, texts in batch for text in texts])
        rows = torch.split(scores, [len(texts) for _, texts in batch])
        value = torch.stack(
            [cross_entropy(row[None], torch.zeros(1, dtype=torch.long)) for row in rows]
        ).mean()
        optimiser.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(body, 1.0)
        optimiser.step()
        steps, recent = steps + 1, recent + value.item()
        if steps % 25 == 0:
            print(f"step {steps}  {done:.0%}  loss {recent / 25:.3f}", flush=True)
            recent = 0.0
    return steps, time.process_time() - began


def score(model: Any, head: Any, pairs: Sequence[tuple[str, str]]) -> "Tensor":
    """The head reads the state of [CLS] and the highest states of the window."""
    import torch

    words = minilm.words()
    questions, passages = words.ids([q for q, _ in pairs]), words.ids([p for _, p in pairs])
    rows = [pair_tokens(q, p, WINDOW) for q, p in zip(questions, passages, strict=True)]
    ids, mask, types = padded(rows)
    with autocast("cpu"):
        states = model(ids, mask, types).last_hidden_state.float()
    most = states.masked_fill((types == 0).unsqueeze(-1), -1e4).amax(1)
    scores: Tensor = head(torch.cat([states[:, 0], most], -1))[:, 0]
    return scores


def save(model: Any, head: Any, folder: Path) -> None:
    """Write the layers in steps of 7 bits, and the head, as kcard.embedded.reader reads them."""
    from safetensors.torch import save_file

    saved = layers_of(model) | {f"head.{name}": value.detach() for name, value in head.named_parameters()}
    save_file(saved, folder / "ranker.safetensors", {"format": "pt"})


if __name__ == "__main__":
    main()
