"""Train the embedded reader: python -m recipes.reader.train --data DATA --packages DIR --output FOLDER

All of all-MiniLM-L6-v2 but its embeddings, with heads for start, end, evidence and relevance
(recipes/reader/network.py), on people's questions about articles (wikipedia.py) and texts of many kinds (datasets.py),
questions of our own about manuals and paragraphs (own.py; `--fetch` downloads the manuals' packages), claims
(claims.py), invented statements and short texts (synth.py, prose.py). `--start` goes on from trained weights,
`--resume` with a run that was ended: every few minutes its whole state is written to the output folder. What is held
out is measured at the end; the record of the run is written to README.md beside the weights.
"""

import argparse
import math
import pickle
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.embedded.reader import Encoded, encode
from kcard.training.execution import autocast
from recipes.packages import fetch
from recipes.reader import claims, datasets, own, wikipedia
from recipes.reader.example import Reading
from recipes.reader.mixture import batches, epoch
from recipes.reader.network import TrainedNetwork, save, untrained
from recipes.reader.record import write_record
from recipes.reader.relevance import balanced, refit

if TYPE_CHECKING:
    from torch import Tensor

RATE, HEAD_RATE, DECAY = 1.2e-4, 1e-3, 0.01
WARM = 150  # steps
TOKENS = 2500  # a batch
DROPOUT = 0.0  # hardly a text is read twice
EVIDENCE = 0.5  # weight of its loss
FROZEN = 2  # layers that stay as `--start` has them, which makes a step a fifth cheaper
SAVED = 180.0  # seconds between checkpoints
CHECKPOINT, EXAMPLES = "checkpoint.pt", "examples.pickle"


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
            span_logits = logits[spans]
            hit = span_logits.masked_fill(~right[spans], -1e9)
            total = total + (torch.logsumexp(span_logits, 1) - torch.logsumexp(hit, 1)).mean()
    supported = outputs.text & evidence.any(1, keepdim=True)
    if supported.any():
        total = total + EVIDENCE * entropy(outputs.evidence[supported], evidence[supported].float())
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
    network: TrainedNetwork,
    plan: Sequence[Sequence[Reading]],
    rate: float = RATE,
    minutes: float = math.inf,
    checkpoint: Path | None = None,
) -> dict[str, int]:
    """Train the network on the batches, in their order; what there is to tell of the run.

    minutes     after which the run ends, although there are batches left; the rate falls to zero by then
    checkpoint  file that holds the whole state of a run; written every few minutes, and gone on from where it is there
    """
    import torch

    heads = [*network.heads.values()]
    body = [weight for weight in network.model.parameters() if weight.requires_grad]
    groups = [{"params": body, "peak": rate}, {"params": heads, "peak": HEAD_RATE * rate / RATE}]
    optimiser = torch.optim.AdamW(groups, lr=rate, weight_decay=DECAY, fused=True)
    steps, done, recent, spent, computed = len(plan), 0, 0.0, 0.0, 0.0
    if checkpoint and checkpoint.is_file():
        state = torch.load(checkpoint)
        if state["steps"] != steps:
            raise SystemExit(
                f"{checkpoint} is of a run of {state['steps']} steps, this one has {steps}: remove it"
            )
        done, spent, computed = state["done"], state["seconds"], state["CPU seconds"]
        _restore(network, optimiser, state)
        print(f"{checkpoint}: goes on after step {done}", flush=True)
    began = saved = time.monotonic()
    computed -= time.process_time()
    seconds = spent
    facts = {"seconds": spent, "CPU seconds": 0.0}
    network.model.train()
    while done < steps and seconds < 60 * minutes:
        left = 1 - max(done / steps, seconds / 60 / minutes)
        for group in optimiser.param_groups:
            group["lr"] = group["peak"] * min(1.0, (done + 1) / WARM) * max(0.02, left)
        # The products in bf16 where the processor has a unit for it; weights and their moments stay in 32 bits.
        with autocast("cpu"):
            value = loss(network, plan[done])
        optimiser.zero_grad(set_to_none=True)
        value.backward()
        torch.nn.utils.clip_grad_norm_([*body, *heads], 1.0)
        optimiser.step()
        done, recent = done + 1, recent + value.item()
        seconds = spent + time.monotonic() - began
        if done % 100 == 0:
            print(f"step {done} of {steps}  {seconds:.0f} s  loss {recent / 100:.3f}", flush=True)
            recent = 0.0
        facts = {"seconds": seconds, "CPU seconds": computed + time.process_time()}
        ended = done == steps or seconds >= 60 * minutes
        if checkpoint and (ended or time.monotonic() - saved > SAVED):
            _store(network, optimiser, checkpoint, {"steps": steps, "done": done, **facts})
            saved = time.monotonic()
    examples = sum(map(len, plan[:done]))
    return {"steps": done, "examples": examples} | {key: round(value) for key, value in facts.items()}


def _store(network: TrainedNetwork, optimiser: Any, path: Path, facts: Mapping[str, object]) -> None:
    """Write a checkpoint; the one before is there until this one is whole."""
    import torch

    state = {
        **facts,
        "model": network.model.state_dict(),
        "heads": dict(network.heads),
        "optimiser": optimiser.state_dict(),
        "random": torch.get_rng_state(),
    }
    part = path.with_suffix(".part")
    torch.save(state, part)
    part.replace(path)


def _restore(network: TrainedNetwork, optimiser: Any, state: dict[str, Any]) -> None:
    import torch

    network.model.load_state_dict(state["model"])
    with torch.no_grad():
        for name, value in network.heads.items():
            value.copy_(state["heads"][name])
    optimiser.load_state_dict(state["optimiser"])
    torch.set_rng_state(state["random"])


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with questions/, reading/, multihop/ and fact_check/"
    )
    parser.add_argument("--packages", type=Path, required=True, help="folder of unpacked packages")
    parser.add_argument("--fetch", action="store_true", help="download the packages first")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="folder of trained weights to go on from")
    parser.add_argument(
        "--resume", action="store_true", help="go on from the checkpoint in the output folder"
    )
    parser.add_argument("--rate", type=float, default=RATE, help="highest learning rate of the encoder")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which training ends early")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.fetch:
        for parts in own.listed().values():
            for manual in parts:
                fetch(manual, options.packages)
    options.output.mkdir(parents=True, exist_ok=True)
    checkpoint, examples = options.output / CHECKPOINT, options.output / EXAMPLES
    if not options.resume:
        checkpoint.unlink(missing_ok=True)
        examples.unlink(missing_ok=True)
    # Reading the manuals takes minutes: the batches of a run are kept for as long as it may be gone on with.
    if not examples.is_file():
        content = _examples(options.data, options.packages, options.epochs, options.seed)
        part = examples.with_suffix(".part")
        part.write_bytes(pickle.dumps(content))
        part.replace(examples)
    plan, held_out = pickle.loads(examples.read_bytes())
    torch.manual_seed(options.seed)
    network = untrained(options.start, DROPOUT)
    if options.start:
        network.model.encoder.layer[:FROZEN].requires_grad_(False)
    facts = train(network, plan, options.rate, options.minutes, checkpoint)
    texts = balanced([reading for batch in plan for reading in batch], options.seed)
    refit(network, texts, options.seed)
    facts["texts of relevance"] = len(texts)
    save(network, options.output)
    settings = {"rate": options.rate, "epochs": options.epochs, "seed": options.seed}
    write_record(options.output, {**facts, **settings}, held_out)


def _examples(
    data: Path, packages: Path, epochs: int, seed: int
) -> tuple[list[list[Reading]], dict[str, list[Reading]]]:
    """Return the batches of a run, and what is held out by its name."""
    squad, squad_held = wikipedia.squad(data)
    nq, nq_held = wikipedia.natural_questions(data)
    about, about_held = own.readings(packages)
    articles = [*squad, *nq, *nq, *wikipedia.multihop(data)]
    articles += own.about_paragraphs(wikipedia.paragraphs(data))
    claim_readings = claims.questions(data, seed)
    plan: list[list[Reading]] = []
    for number in range(seed, seed + epochs):
        sets = datasets.draw(data, number)
        plan += batches(epoch(articles, sets, about, claim_readings, number), TOKENS, number)
    held_out = {"SQuAD": squad_held, "NQ": nq_held, "manuals": about_held}
    return plan, held_out | datasets.held_out(data)


if __name__ == "__main__":
    main()
