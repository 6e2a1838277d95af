"""Train the offline fact checker: MiniLM as a cross-encoder with LoRA, from VitaminC, manuals and invented facts.

    python -m recipes.checker.train --path FACT_CHECK_DIR --output src/kcard/embedded/weights/checker --seconds 1800

Reads only train.jsonl.gz of that folder. `--packages` is a folder with the unpacked packages of
recipes/reader/questions, which adds claims about their sentences. `--seconds` are CPU seconds on one core, and
determine the schedule of the learning rate.
"""

import argparse
import itertools
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from kcard.batching import by_tokens
from kcard.embedded import minilm
from kcard.interfaces import Pair
from kcard.selectors.minilm_checker import EncodedPair, encode_pairs
from kcard.training.execution import autocast, bf16
from recipes.checker import cross_encoder
from recipes.checker.contrasts import contrasts
from recipes.checker.invented import invented
from recipes.checker.manuals import pairs as claims_of_manuals
from recipes.checker.record import runs, write_record
from recipes.checker.relations import RELATIONS
from recipes.checker.rows import SUPPORTS, UNSUPPORTED, Row, read
from recipes.checker.swaps import swaps
from recipes.digests import write_digests

RANK = 32
TARGETS = r".*\.(query|key|value|dense)"
TOKENS = 128
GROUP = 2048
BATCH_TOKENS = 2048
ADAPTER_RATE, HEAD_RATE = 8e-4, 1e-3
WARM_UP = 0.06
SWAPPED, CONTRASTED = 0.3, 0.2
MANUALS = 4  # times in a round


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", type=Path, required=True, help="folder with train.jsonl.gz")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=1800.0, help="CPU seconds to train")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=Path, help="go on from these weights")
    parser.add_argument("--rate", type=float, default=1.0, help="share of the full learning rate")
    parser.add_argument("--invented", type=int, default=40_000, help="invented rows a round")
    parser.add_argument("--real", type=int, default=10**9, help="rows of train.jsonl.gz a round, at most")
    parser.add_argument("--packages", type=Path, help="folder of unpacked packages")
    options = parser.parse_args()
    plan = Plan(options.seconds, options.seed, options.rate, options.invented, options.real)
    manual_claims = (
        list(claims_of_manuals(options.packages, Random(options.seed))) if options.packages else []
    )
    real = read(options.path / "train.jsonl.gz")
    train(Material(real, manual_claims), options.output, plan, options.start)


@dataclass(frozen=True)
class Plan:
    """What a run is told: its CPU seconds, seed, share of the full learning rate, invented and real rows a round."""

    seconds: float
    seed: int = 0
    rate: float = 1.0
    invented: int = 40_000
    real: int = 10**9


@dataclass(frozen=True)
class Material:
    """`real`: rows of Wikipedia; `manuals`: rows of manuals, which come several times a round."""

    real: Sequence[Row]
    manuals: Sequence[Row] = ()


def train(material: Material, output: Path, plan: Plan, start_from: Path | None = None) -> None:
    """Train for the plan's CPU time; what is learnt so far is saved every 500 steps and at the end."""
    import torch

    torch.manual_seed(plan.seed)
    torch.set_num_threads(1)
    adapted, head = _adapted(start_from), _head(start_from)
    adapter = [p for p in adapted.parameters() if p.requires_grad]
    groups = [{"params": adapter, "lr": ADAPTER_RATE}, {"params": list(head.values()), "lr": HEAD_RATE}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01, betas=(0.9, 0.98))
    start = time.process_time()
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda _: plan.rate * _rate((time.process_time() - start) / plan.seconds)
    )
    losses: list[float] = []
    pairs = 0
    earlier = runs(start_from) if start_from else []
    facts = {"rank": RANK, "real": len(material.real), "manuals": len(material.manuals)}
    for batch, labels in _batches(material, plan, Random(plan.seed)):
        with autocast("cpu"):
            loss = _loss(cross_encoder.logits(adapted, head, batch, dropout=0.1), torch.tensor(labels))
        loss.backward()
        torch.nn.utils.clip_grad_norm_([*adapter, *head.values()], 1.0)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        losses.append(loss.item())
        pairs, spent = pairs + len(batch), time.process_time() - start
        if len(losses) % 50 == 0:
            recent = sum(losses[-50:]) / 50
            print(
                f"step {len(losses)} loss {recent:.3f} pairs {pairs} cpu {spent:.0f}/{plan.seconds:.0f} s",
                flush=True,
            )
        if len(losses) % 500 == 0 or spent >= plan.seconds:
            this = {
                "budget": round(plan.seconds),
                "seed": plan.seed,
                "rate": plan.rate,
                "invented": plan.invented,
                "real": min(plan.real, len(material.real)),
                "relations": len(RELATIONS),
                "steps": len(losses),
                "pairs": pairs,
                "seconds": round(spent),
            }
            _save(adapted, head, output)
            write_record(output, [*earlier, this], facts)
            write_digests(output)
        if spent >= plan.seconds:
            return


def _batches(material: Material, plan: Plan, rng: Random) -> Iterator[tuple[list[EncodedPair], list[int]]]:
    """Batches of like length without end: every round all real rows, with fresh swaps and fresh invented facts."""
    while True:
        invented_rows = itertools.islice(invented(rng), plan.invented)
        real = rng.sample(material.real, min(plan.real, len(material.real)))
        rows = [
            *real,
            *(row for _ in range(MANUALS) for row in material.manuals),
            *swaps(real, SWAPPED, rng),
            *contrasts(real, CONTRASTED, rng),
            *invented_rows,
        ]
        rng.shuffle(rows)
        print(
            f"round of {len(rows)} rows: {dict(sorted(Counter(r.label for r in rows).items()))}", flush=True
        )
        for start in range(0, len(rows), GROUP):
            group = rows[start : start + GROUP]
            encoded = encode_pairs(minilm.words().ids, [Pair(r.claim, r.evidence) for r in group], TOKENS)
            order = list(by_tokens([len(r.ids) for r in encoded], BATCH_TOKENS))
            rng.shuffle(order)
            for chosen in order:
                yield [encoded[i] for i in chosen], [group[i].label for i in chosen]


def _adapted(start_from: Path | None) -> Any:
    """MiniLM, frozen, with float32 adapters on every linear layer of its blocks."""
    import torch
    from peft import LoraConfig, get_peft_model, set_peft_model_state_dict
    from safetensors.torch import load_file

    base: Any = minilm.model("eager")
    config = LoraConfig(r=RANK, lora_alpha=2 * RANK, lora_dropout=0.0, target_modules=TARGETS)
    adapted = get_peft_model(base.to(torch.bfloat16) if bf16("cpu") else base, config)
    if start_from:
        set_peft_model_state_dict(adapted, load_file(start_from / "adapter_model.safetensors"))
    return adapted


def _head(start_from: Path | None) -> dict[str, Any]:
    import torch
    from safetensors.torch import load_file

    if start_from:
        saved = load_file(start_from / "head.safetensors")
        return {name: weight.float().requires_grad_() for name, weight in saved.items()}
    width, hidden, labels = 3 * minilm.DIMENSIONS, cross_encoder.HIDDEN, len(cross_encoder.LABELS)
    first, second = torch.nn.Linear(width, hidden), torch.nn.Linear(hidden, labels)
    return {
        "hidden.weight": first.weight,
        "hidden.bias": first.bias,
        "output.weight": second.weight,
        "output.bias": second.bias,
    }


def _rate(done: float) -> float:
    """Share of the full learning rate after a share of the time: linear warm-up, then a cosine to 0."""
    if done < WARM_UP:
        return max(0.01, done / WARM_UP)
    return 0.5 * (1 + math.cos(math.pi * (min(done, 1.0) - WARM_UP) / (1 - WARM_UP)))


def _loss(scores: Any, labels: Any) -> Any:
    """Cross-entropy; for UNSUPPORTED rows the likelihood of either of the two other labels."""
    import torch
    from torch.nn.functional import cross_entropy, log_softmax

    either = -torch.logsumexp(log_softmax(scores, -1)[:, SUPPORTS + 1 :], -1)
    likelihood = cross_entropy(scores, labels.clamp(max=UNSUPPORTED - 1), reduction="none")
    return torch.where(labels == UNSUPPORTED, either, likelihood).mean()


def _save(adapted: Any, head: dict[str, Any], output: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    output.mkdir(parents=True, exist_ok=True)
    adapted.save_pretrained(output)
    weights = load_file(output / "adapter_model.safetensors")
    save_file({k: v.to(torch.float16) for k, v in weights.items()}, output / "adapter_model.safetensors")
    half = {k: v.detach().to(torch.float16).contiguous() for k, v in head.items()}
    save_file(half, output / "head.safetensors")
    for path in output.glob("*.safetensors"):
        path.chmod(0o644)


if __name__ == "__main__":
    main()
