"""The time of a training step on a real base, beside transformers' plain Trainer with peft.

    python -m benchmarks.training_step --base smollm2-135m-hf [--corpus FOLDER] [--method lora full] [--rounds 3]

Both train the same examples (question -> passage) in batches of 8, on one device and in one process; rounds alternate.
The plain Trainer pads with DataCollatorForSeq2Seq and computes the logits of every token; kcard groups rows of similar
length, and computes those that are learned.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from benchmarks.recall import rows
from kcard.training.base_model import WeightSource
from kcard.training.corpus import read_corpus
from kcard.training.epochs import IGNORED_LABEL
from kcard.training.execution import Execution, bf16
from kcard.training.finetune import options_of, prepare
from kcard.training.trainer import train_quietly

STEPS, WARM_STEPS = 8, 2
COLUMNS = ("method", "trainer", "s a step", "ratio")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base", required=True)
    parser.add_argument("--corpus", type=Path, default=Path("demo/corpora/moons"))
    parser.add_argument("--method", nargs="+", choices=("lora", "full"), default=["lora", "full"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    texts = read_corpus(args.corpus).texts
    results = []
    for method in args.method:
        seconds = compare(args.base, method, texts, args.rounds)
        for name, values in seconds.items():
            median = statistics.median(values)
            ratio = median / statistics.median(seconds["kcard"])
            row = (method, name, f"{median:.2f}", f"{ratio:.2f}")
            results.append(dict(zip(COLUMNS, row, strict=True)))
    if args.json:
        json.dump(results, sys.stdout, indent=2)
    else:
        print(rows(COLUMNS, results))


def compare(base: str, method: str, texts: Sequence[str], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each step of either trainer."""
    preparation = prepare(texts, options_of(base, method=method, probe_questions=0), origin=WeightSource())
    run = preparation.job
    examples = run.epochs(0)
    plain = plain_model(base, method)
    padded = []
    for number in range(STEPS * run.batch):
        example = examples[number]
        ids = [*example.prompt, *example.target]
        labels = [IGNORED_LABEL] * len(example.prompt) + list(example.target)
        padded.append({"input_ids": ids, "labels": labels, "attention_mask": [1] * len(ids)})
    seconds: dict[str, list[float]] = {"kcard": [], "plain Trainer": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            clock = StepClock()
            train_quietly(run.make_trainer(Path(folder), STEPS, clock))
            seconds["kcard"] += clock.seconds[WARM_STEPS:]
            clock = StepClock()
            train_quietly(plain_trainer(plain, base, padded, run.batch, Path(folder), clock))
            seconds["plain Trainer"] += clock.seconds[WARM_STEPS:]
    return seconds


def plain_model(base: str, method: str) -> Any:
    """Return the model as the guides of transformers and peft load it."""
    model: Any = AutoModelForCausalLM.from_pretrained(base, trust_remote_code=False)
    if method == "lora":
        from peft import LoraConfig, get_peft_model

        adapter = LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(model, adapter)
    return model


def plain_trainer(
    model: Any, base: str, rows: Sequence[dict[str, Any]], batch: int, folder: Path, clock: TrainerCallback
) -> Trainer:
    """Return the Trainer that anyone would write for these rows."""
    tokenizer = AutoTokenizer.from_pretrained(base, trust_remote_code=False)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    device = Execution().place().partition(":")[0]
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=batch,
        learning_rate=1e-5,
        bf16=bf16(device),
        use_cpu=device == "cpu",
        report_to="none",
        disable_tqdm=True,
        save_strategy="no",
    )
    collator = DataCollatorForSeq2Seq(tokenizer, model, label_pad_token_id=IGNORED_LABEL)
    return Trainer(model, arguments, collator, list(rows), callbacks=[clock])


class StepClock(TrainerCallback):
    """Notes how long each step takes."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._begun = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._begun = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds.append(time.perf_counter() - self._begun)


if __name__ == "__main__":
    main()
