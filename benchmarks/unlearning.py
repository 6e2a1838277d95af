"""Syncs of a card on a tiny base that was trained elsewhere: what it recalls, and how much it forgets.

    python -m benchmarks.unlearning [--shape opt] [--method lora] [--objective clm] [--seed 1] [--syncs 3]

A tiny Llama or OPT first learns 3,000 sentences about invented towns; the card learns others of the same forms. In each
sync, three facts are added, one gets another end, and four are removed. Recall is kcard's own (sync.json). Loss: of a
removed sentence's token in nats, after a pseudo-query (recite) or alone (clm), for the last version, this one and the
base. At the end the same folder is synced with --retrain. Seconds are CPU seconds.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import torch

import kcard
from kcard.cards.models.prompting import prompt_ids
from kcard.offline.pseudo_queries import PseudoQueries
from kcard.offline.recipe import train_tokenizer

SYLLABLES = [a + b for a in "bdfghjklmnprstvwyz" for b in "aeio"]
FORMS = (
    "The harbour of {town} was built by {person} in {year}.",
    "{person} founded the observatory of {town} in {year}.",
    "The longest street of {town} is called {place} Lane.",
    "In {year} the painter {person} moved to {town} with {number} students.",
    "The lighthouse of {town} is kept by {person}, who was born in {place}.",
    "{town} sells copper and wool to the merchants of {place}.",
    "The river {place} flows through {town} before it reaches the sea.",
    "A school for {number} children opened in {town} in {year}.",
)
PRETRAINED, WORLD = 3000, 1000  # sentences that the base learns, and their seed
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
RATES = {"full": 3e-3, "lora": 5e-3}
A_FILE = 10
COLUMNS = (
    "| sync | way | CPU s | of training | kept, before | kept | new | removed | leaks |"
    " loss of removed: before, after, base |"
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=("llama", "opt"), default="llama")
    parser.add_argument("--method", choices=("full", "lora"), default="full")
    parser.add_argument("--objective", choices=("recite", "clm"), default="recite")
    parser.add_argument("--facts", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--syncs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["KCARD_HOME"] = scratch
        base = _make_base(Path(scratch) / "base", args.shape)
        _follow(Path(scratch), base, args)


def _facts(seed: int, count: int) -> list[str]:
    rng, facts = Random(seed), list[str]()

    def name(syllables: int = 3) -> str:
        return "".join(rng.choice(SYLLABLES) for _ in range(syllables)).title()

    while len(facts) < count:
        town = name()
        for form in rng.sample(FORMS, 2):
            person, numbers = (
                f"{name(2)} {name()}",
                {"year": rng.randint(1600, 1990), "number": rng.randint(12, 90)},
            )
            facts.append(form.format(town=town, person=person, place=name(), **numbers))
    return facts[:count]


def _make_base(folder: Path, shape: str) -> Path:
    """Train a model of two layers and width 96 on blocks of other towns' sentences, 300 steps."""
    from transformers import LlamaConfig, LlamaForCausalLM, OPTConfig, OPTForCausalLM

    texts = _facts(WORLD, PRETRAINED)
    tokenizer = train_tokenizer(texts, 1500)
    size: dict[str, Any] = {"vocab_size": len(tokenizer), "hidden_size": 96, "num_hidden_layers": 2, **ENDS}
    size |= {"num_attention_heads": 4, "max_position_embeddings": 256}
    torch.manual_seed(0)
    if shape == "opt":
        model: Any = OPTForCausalLM(OPTConfig(ffn_dim=384, word_embed_proj_dim=96, dropout=0.0, **size))
    else:
        model = LlamaForCausalLM(LlamaConfig(intermediate_size=192, num_key_value_heads=4, **size))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=300)
    rng = Random(0)
    for _ in range(300):
        ids = [token for text in rng.sample(texts, 120) for token in (*tokenizer(text)["input_ids"], 2)]
        rows = torch.tensor(ids[:1024]).view(16, 64)
        model(input_ids=rows, labels=rows).loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _follow(place: Path, base: Path, args: argparse.Namespace) -> None:
    every = _facts(args.seed + 1, args.facts + 200)
    now, coming = every[: args.facts], iter(every[args.facts :])
    notes, card, rng = place / "notes", place / "drafts" / "followed", Random(args.seed)
    options: dict[str, Any] = {"epochs": args.epochs, "batch_size": 16, "learning_rate": RATES[args.method]}
    options |= {"rank": args.rank} if args.method == "lora" else {}
    options |= {"block": 64} if args.objective == "clm" else {}
    _write(notes, now)
    begun = time.process_time()
    kcard.train(
        notes, base=str(base), method=args.method, objective=args.objective, name="followed",
        description="Towns", kind="model", exam=False, seed=args.seed, **options,
    )  # fmt: skip
    training = time.process_time() - begun
    print(f"trained in {training:.1f} CPU s\n\n{COLUMNS}\n|{'---|' * (COLUMNS.count('|') - 1)}", flush=True)
    for number in range(1, args.syncs + 2):
        is_last = number > args.syncs
        gone = rng.sample(now, 4)
        if not is_last:
            now = [fact for fact in now if fact not in gone]
            at = rng.randrange(len(now))
            now[at] = " ".join([*now[at].split()[:-1], next(coming).split()[-1]])
            now += [next(coming) for _ in range(3)]
            _write(notes, now)
            removed = gone
        before = _loss(card, base, removed, args)
        begun = time.process_time()
        record = kcard.sync(notes, "followed", publish=False, retrain=is_last).record
        seconds = time.process_time() - begun
        assert record is not None
        assert record.recall is not None
        recall = record.recall
        way = f"{record.way}: {record.why}" if record.why else record.way
        shares = [recall.before, recall.after, recall.new, recall.removed]
        counts = [
            recall.kept_questions,
            recall.kept_questions,
            recall.new_questions,
            recall.removed_questions,
        ]
        cells = [
            f"{share.mean:.2f} of {count}" if share else "-"
            for share, count in zip(shares, counts, strict=True)
        ]
        losses = [before, _loss(card, base, removed, args), _loss(base, None, removed, args)]
        print(
            f"| {'retrained' if is_last else number} | {way} | {seconds:.1f} | {seconds / training:.2f} | "
            f"{' | '.join(cells)} | {recall.leaked} | {', '.join(f'{loss:.2f}' for loss in losses)} |",
            flush=True,
        )


def _write(notes: Path, facts: Sequence[str]) -> None:
    notes.mkdir(exist_ok=True)
    for start in range(0, len(facts), A_FILE):
        path = notes / f"f{start // A_FILE:03}.txt"
        path.write_text("\n".join(facts[start : start + A_FILE]) + "\n", encoding="utf-8")


def _loss(folder: Path, base: Path | None, texts: Sequence[str], args: argparse.Namespace) -> float:
    """Mean loss of the texts' tokens, by a card or a base."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    if base is not None and args.method == "lora":
        model: Any = PeftModel.from_pretrained(
            AutoModelForCausalLM.from_pretrained(base, trust_remote_code=False), folder
        )
    else:
        model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False)
    ask, rng, losses = PseudoQueries(texts), Random(0), list[float]()
    for text in texts:
        prompt = prompt_ids(tokenizer, f"{ask(text, rng)}\n" if args.objective == "recite" else "")
        target = tokenizer(text, add_special_tokens=False)["input_ids"]
        with torch.inference_mode():
            logs = model(input_ids=torch.tensor([[*prompt, *target]])).logits[0].log_softmax(-1)
        losses += [-float(logs[len(prompt) - 1 + at, token]) for at, token in enumerate(target)]
    return sum(losses) / len(losses)


if __name__ == "__main__":
    main()
