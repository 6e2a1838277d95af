"""Train the static embeddings: python -m recipes.static.train --data DATA --output src/kcard/embedded/weights/static

First every token of all-MiniLM-L6-v2 is embedded alone, and the vectors are reduced and weighted (model2vec; Tulkens
and van Dongen, 2024). Then the table is trained on human questions: the mean vectors of a question and of the passage
that answers it are pulled together, and away from the other passages of the batch (InfoNCE). DATA contains
questions/*-train.jsonl.gz, without articles of SQuAD's development set, on which retrieval is measured.

model2vec[distill] requires older tokenizers than kcard: install it in an environment of its own.
"""

import argparse
import gzip
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kcard.embedded import minilm
from kcard.embedded.static_embeddings import DIMENSIONS
from recipes.digests import write_digests
from recipes.quantisation import quantised

if TYPE_CHECKING:
    from torch import Tensor

# Wrong passages, facts to reason about, and chat say little about which passage answers a question.
LEFT_OUT = {"mismatch-none", "strategyqa-facts", "molweni"}
TITLED = {"squadshifts-wiki", "nq-gold", "squad-sentence", "qamr-wiki", "boolq", "clapnq"}
WORDS = 150  # of a passage, as a card's index has them
RATE, TEMPERATURE, WARM = 3e-3, 0.05, 20
BATCH = 1024
RECORD = """---
license: cc-by-sa-4.0
language: en
base_model: sentence-transformers/all-MiniLM-L6-v2
library_name: model2vec
---

# kcard's static embeddings

A vector of {dimensions} numbers for each token of all-MiniLM-L6-v2's tokenizer, in steps of 8 bits; a text has the mean
of its tokens'. Distilled from sentence-transformers/all-MiniLM-L6-v2 (sha256
{sha256}, Apache-2.0) with model2vec, then
trained on {count} questions of people with the passages that answer them: {epochs} epochs of batches of {batch}, seed
{seed}, {seconds} CPU seconds.

Training data: FairytaleQA (Xu et al., 2022; Apache-2.0), SquadShifts (Miller et al., 2020; CC BY 4.0), SQuAD with
sentences (Du et al., 2017; CC BY-SA 4.0), QAMR (Michael et al., 2018; text CC BY-SA 3.0), BoolQ (Clark et al., 2019;
CC BY-SA 3.0), Natural Questions (Kwiatkowski et al., 2019; CC BY-SA 3.0), COVID-QA (Möller et al., 2020; Apache-2.0),
PubMedQA (Jin et al., 2019; MIT), CLAPnq (Rosenthal et al., 2024; Apache-2.0, text CC BY-SA 3.0).

Made by `python -m recipes.static.train`. What it finds: docs/results.md, "Prose".
"""


@dataclass(frozen=True)
class Pair:
    """A question, the passage that answers it, the answer's words if there are some, and the set it is from."""

    question: str
    passage: str
    answer: str
    source: str


def read(data: Path, rng: random.Random) -> list[Pair]:
    """Questions with at most WORDS words of their passage around the answer, half of the titled ones with the title."""
    pairs = []
    for path in sorted((data / "questions").glob("*-train.jsonl.gz")):
        source = path.name.removesuffix("-train.jsonl.gz")
        if source in LEFT_OUT:
            continue
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        for row in rows:
            if row["type"] == "none":
                continue
            passage = _window(row, rng)
            if row.get("title") and source in TITLED and rng.random() < 0.5:
                passage = f"{row['title'].replace('_', ' ')}: {passage}"
            answer = (row.get("answers") or [""])[0] if row["type"] == "span" else ""
            pairs.append(Pair(row["question"], passage, str(answer), source))
    return pairs


def _window(row: dict[str, Any], rng: random.Random) -> str:
    words = row["context"].split(" ")
    if len(words) <= WORDS:
        return str(row["context"])
    starts = row.get("answer_start")
    start = (starts[0] if starts else None) if isinstance(starts, list) else starts
    place = len(row["context"][: start or 0].split(" ")) if start else 0
    first = max(0, min(place - rng.randrange(20, WORDS - 20), len(words) - WORDS))
    return " ".join(words[first : first + WORDS])


def distilled() -> "Tensor":
    """The table before training, (30522, 256), in the order of the tokenizer's ids; zeros for tokens without a text."""
    import torch
    from model2vec.distill import distill_from_model
    from transformers import AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(minilm.folder(), trust_remote_code=False)
    tokenizer = AutoTokenizer.from_pretrained(minilm.folder(), trust_remote_code=False)
    static = distill_from_model(model, tokenizer, pca_dims=DIMENSIONS, device="cpu")
    place = tokenizer.get_vocab()
    table = torch.zeros(len(place), DIMENSIONS)
    for token, vector in zip(
        static.tokens, torch.from_numpy(static.embedding.astype(np.float32)), strict=True
    ):
        if token in place:
            table[place[token]] = vector
    for special in tokenizer.all_special_ids:
        table[special] = 0
    return table


def train(table: "Tensor", pairs: Sequence[Pair], epochs: int, seed: int) -> "Tensor":
    """The table after so many epochs."""
    import torch
    from torch.nn.functional import cross_entropy, normalize

    torch.manual_seed(seed)
    rows = table.norm(dim=1) > 0
    bag = torch.nn.EmbeddingBag.from_pretrained(
        table / table[rows].norm(dim=1).mean(), freeze=False, mode="mean"
    )
    optimiser = torch.optim.Adam(bag.parameters(), lr=RATE, betas=(0.9, 0.98))
    questions, passages = (
        [torch.tensor(ids or [minilm.PAD]) for ids in minilm.words().ids(texts)]
        for texts in ([pair.question for pair in pairs], [pair.passage for pair in pairs])
    )
    numbers: dict[str, int] = {}
    same = torch.tensor([numbers.setdefault(pair.passage[:200], len(numbers)) for pair in pairs])
    steps, done = epochs * (len(pairs) // BATCH), 0

    def embed(texts: "list[Tensor]") -> "Tensor":
        starts = torch.tensor([0, *(len(text) for text in texts[:-1])]).cumsum(0)
        return normalize(bag(torch.cat(texts), starts), dim=-1)

    for _ in range(epochs):
        for chosen in torch.randperm(len(pairs))[: len(pairs) // BATCH * BATCH].view(-1, BATCH):
            for group in optimiser.param_groups:
                group["lr"] = RATE * min(1.0, (done + 1) / WARM) * (1 - done / steps)
            rows = chosen.tolist()
            near = embed([questions[i] for i in rows]) @ embed([passages[i] for i in rows]).T / TEMPERATURE
            # A passage that is another row's too is no wrong one.
            equal = (same[chosen, None] == same[None, chosen]) & ~torch.eye(BATCH, dtype=torch.bool)
            near = near.masked_fill(equal, -1e4)
            right = torch.arange(BATCH)
            loss = (cross_entropy(near, right) + cross_entropy(near.T, right)) / 2
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            done += 1
            if done % 20 == 0:
                print(f"step {done} of {steps}: loss {loss.item():.3f}", flush=True)
    trained = bag.weight.detach().clone()
    trained[table.norm(dim=1) == 0] = 0
    return trained


def save(table: "Tensor", folder: Path) -> None:
    """Write static.safetensors: the table in steps of 8 bits."""
    from safetensors.torch import save_file

    save_file(quantised("tokens", table), folder / "static.safetensors", {"format": "pt"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with questions/")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began = time.process_time()
    pairs = read(options.data, random.Random(options.seed))
    table = train(distilled(), pairs, options.epochs, options.seed)
    options.output.mkdir(parents=True, exist_ok=True)
    save(table, options.output)
    seconds = round(time.process_time() - began)
    facts = {"count": f"{len(pairs):,}", "epochs": options.epochs, "batch": BATCH, "seed": options.seed}
    record = RECORD.format(dimensions=DIMENSIONS, sha256=minilm.SHA256, seconds=seconds, **facts)
    (options.output / "README.md").write_text(record, encoding="utf-8")
    write_digests(options.output)


if __name__ == "__main__":
    main()
