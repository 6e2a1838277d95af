"""Train the embedded reader: python -m recipes.reader.train --path DATA --output llms/weights/reader --seconds 1200

LoRA on all-MiniLM-L6-v2 and a start/end head, on invented examples (synth.py), on texts of our own (prose.py) and on
claims with their evidence (cloze.py; DATA holds VitaminC's train.jsonl.gz). `--start` goes on from trained weights.
`--seconds` is CPU time of the process; the record of the run is written to README.md beside the weights.
"""

import argparse
import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kcard import encoder
from kcard.llms.span_network import Network, tokens
from recipes.digests import write_digests
from recipes.reader.cloze import Cloze
from recipes.reader.prose import Prose
from recipes.reader.record import write_record
from recipes.reader.synth import Example, Synthesis

if TYPE_CHECKING:
    import torch

RANK = 24
TARGETS = ["query", "key", "value", "dense"]
BATCH_TOKENS = 1024
POOL = 1024
STEP_WARMUP = 40
# Log-odds that a span must exceed: a wrong answer is worse than none.
THRESHOLD = 2.0
SHARES = {"invented": 0.35, "prose": 0.45, "cloze": 0.2}


def fresh_network(rank: int) -> Network:
    """The encoder with an untrained adapter on every linear layer, and an untrained head."""
    import torch
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules=TARGETS, bias="none")
    model = get_peft_model(encoder.model("eager"), config).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return Network(model, torch.nn.Linear(encoder.DIMENSIONS, 2))


class Source(Protocol):
    def example(self) -> Example: ...


@dataclass(frozen=True)
class Mixture:
    """Examples of several sources by their shares."""

    sources: Sequence[Source]
    shares: Sequence[float]
    rng: random.Random

    def example(self) -> Example:
        return self.rng.choices(self.sources, self.shares)[0].example()


def resumed(folder: Path) -> Network:
    """The network that `save` wrote, its adapter ready to be trained further."""
    from safetensors.torch import load_file

    rank = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))["r"]
    network = fresh_network(rank)
    saved = load_file(folder / "adapter_model.safetensors")
    weights = {name.replace(".weight", ".default.weight"): value.float() for name, value in saved.items()}
    unknown = network.model.load_state_dict(weights, strict=False).unexpected_keys
    if unknown:
        raise ValueError(f"{folder} holds weights of another network: {unknown[0]}")
    head = load_file(folder / "head.safetensors")
    network.head.load_state_dict({"weight": head["weight"], "bias": head["bias"]})
    return network


def batches(source: Source, rng: random.Random) -> Iterator[list[Example]]:
    """Batches of about BATCH_TOKENS tokens, examples of like length together."""
    while True:
        pool = sorted((source.example() for _ in range(POOL)), key=_length)
        found: list[list[Example]] = [[]]
        for example in pool:
            if found[-1] and (len(found[-1]) + 1) * (_length(example) / 3.6 + 8) > BATCH_TOKENS:
                found.append([])
            found[-1].append(example)
        rng.shuffle(found)
        yield from found


def _length(example: Example) -> int:
    return len(example.question) + sum(map(len, example.passages))


def targets(batch: Sequence[Example], offsets: "torch.Tensor", types: "torch.Tensor") -> "torch.Tensor":
    """Which tokens are right starts and ends, bool, shape (n, tokens, 2); token 0 where nothing answers."""
    import torch

    found = torch.zeros(*types.shape, 2, dtype=torch.bool)
    for row, example in enumerate(batch):
        shifts = [0]
        for passage in example.passages:
            shifts.append(shifts[-1] + len(passage) + 1)
        for passage_number, start, end in example.spans:
            low, high = start + shifts[passage_number], end + shifts[passage_number]
            inside = (types[row] == 1) & (offsets[row, :, 0] < high) & (offsets[row, :, 1] > low)
            places = inside.nonzero().flatten().tolist()
            if places:
                found[row, places[0], 0] = found[row, places[-1], 1] = True
        if not found[row].any():
            found[row, 0] = True
    return found


def loss(network: Network, batch: Sequence[Example]) -> "torch.Tensor":
    """Marginal cross-entropy: any of the right starts and ends will do."""
    import torch

    encoded = tokens([e.question for e in batch], [" ".join(e.passages) for e in batch])
    offsets = encoded.pop("offset_mapping")
    right = targets(batch, offsets, encoded["token_type_ids"])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = network.logits(dict(encoded))
    total = torch.logsumexp(logits, dim=1)
    hit = torch.logsumexp(logits.masked_fill(~right, -1e9), dim=1)
    return (total - hit).sum(-1).mean()


def train(
    network: Network, claims: Path, seconds: float, seed: int, rate: float = 1e-3, unanswerable: float = 0.4
) -> dict[str, object]:
    """Train the network; what there is to tell of the run."""
    import torch

    rng = random.Random(seed)
    sources = (Synthesis(seed, unanswerable), Prose(seed), Cloze(claims, seed))
    source = Mixture(sources, tuple(SHARES.values()), rng)
    parameters = [p for p in network.model.parameters() if p.requires_grad] + list(network.head.parameters())
    optimiser = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.01)
    began, steps, examples, recent = time.process_time(), 0, 0, 0.0
    for batch in batches(source, rng):
        spent = (time.process_time() - began) / seconds
        if spent >= 1:
            break
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1.0, (steps + 1) / STEP_WARMUP) * max(0.02, 1 - spent)
        value = loss(network, batch)
        value.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        steps, examples, recent = steps + 1, examples + len(batch), recent + value.item()
        if steps % 100 == 0:
            print(
                f"step {steps}  {time.process_time() - began:.0f} s  loss {recent / 100:.4f}  examples {examples}",
                flush=True,
            )
            recent = 0.0
    facts: dict[str, object] = {
        "steps": steps,
        "examples": examples,
        "CPU seconds": round(time.process_time() - began),
    }
    return facts | {"learning rate": rate, "unanswerable share": unanswerable, "seed": seed}


def save(network: Network, folder: Path) -> None:
    """The adapter in fp16 as PEFT writes it, and the head with the threshold."""
    import torch
    from safetensors.torch import load_file, save_file

    network.model.save_pretrained(folder)
    adapter = folder / "adapter_model.safetensors"
    save_file({name: value.half() for name, value in load_file(adapter).items()}, adapter, {"format": "pt"})
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = encoder.NAME
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    head = {
        "weight": network.head.weight.data,
        "bias": network.head.bias.data,
        "threshold": torch.tensor(network.threshold),
    }
    save_file(head, folder / "head.safetensors", {"format": "pt"})


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--path", type=Path, required=True, help="folder with train.jsonl.gz")
    parser.add_argument("--start", type=Path, help="trained weights to go on from")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rank", type=int, default=RANK)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--unanswerable", type=float, default=0.4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.output.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    network = resumed(options.start) if options.start else fresh_network(options.rank)
    facts = train(network, options.path, options.seconds, options.seed, options.rate, options.unanswerable)
    network.model.eval()
    network = replace(network, threshold=THRESHOLD)
    save(network, options.output)
    write_record(options.output, network, facts, SHARES)
    write_digests(options.output)


if __name__ == "__main__":
    main()
