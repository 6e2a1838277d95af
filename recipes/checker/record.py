"""Write the training record of the checker's weights."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kcard.embedded import minilm

RUNS = "training.json"
README = """---
base_model: {base}
base_model_relation: adapter
library_name: peft
license: cc-by-sa-3.0
language: en
tags: [fact-checking, lora]
---

# The offline fact checker of kcard

A LoRA adapter (rank {rank}) for all-MiniLM-L6-v2 (sha256 {sha256})
and a small head: a cross-encoder that reads `[CLS] evidence [SEP] claim [SEP]` and says supports, refutes or not
enough information. `adapter_model.safetensors` loads with peft; `head.safetensors` is the head (see
selectors/cross_encoder.py). All weights are fp16.

Made by

{runs}

Trained on
- VitaminC (Schuster et al., 2021), real and synthetic revisions of Wikipedia, a part of the public test files split
  by page, and the development file of FEVER-Symmetric (Schuster et al., 2019): {real} claims with
  evidence, CC BY-SA 3.0;
- swaps of their supported claims (opposite words, negations, other numbers, other names), and their contrasting
  texts and claims set against each other, made anew every round;
- {manuals} claims about sentences of manuals (recipes/checker/pairs.jsonl), written for kcard, Apache-2.0;
- invented facts in several wordings each, with the changes that make a claim about them false.

No evaluation question or statement of MidtermQA, PopQA, WikiDYK, MMLU or TruthfulQA is among them, nor any row of the
validation and test files. What it reaches and where it fails: docs/selectors.md.
"""


RUN = """    python -m recipes.checker.train --path FACT_CHECK_DIR --output {output} \\
        --seconds {budget} --seed {seed} --rate {rate} --invented {invented}{more}

{steps} steps, {pairs} pairs, {seconds} CPU seconds of one core; invented facts of {relations} relations."""


def runs(folder: Path) -> list[dict[str, float]]:
    """The runs that made the weights of a folder, the first one first."""
    rows: list[dict[str, float]] = json.loads((folder / RUNS).read_text(encoding="utf-8"))["runs"]
    return rows


def write_record(folder: Path, rows: Sequence[Mapping[str, float]], facts: Mapping[str, int]) -> None:
    """Write README.md and training.json, and name the base model in the adapter's config, not a folder.

    `made` is one mapping a run: budget, seed, rate, invented, relations, steps, pairs, seconds. `facts` holds
    rank, real and manuals.
    """
    config_file = folder / "adapter_config.json"
    config = json.loads(config_file.read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = minilm.NAME
    config_file.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    record = {"runs": list(rows), **facts}
    (folder / RUNS).write_text(json.dumps(record, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    text = README.format(base=minilm.NAME, sha256=minilm.SHA256, runs="\n\n".join(_commands(rows)), **facts)
    (folder / "README.md").write_text(text, encoding="utf-8")


def _commands(rows: Sequence[Mapping[str, float]]) -> Iterator[str]:
    for number, run in enumerate(rows, start=1):
        output = "src/kcard/embedded/weights/checker" if number == len(rows) else f"FOLDER{number}"
        more = f" --start FOLDER{number - 1}" if number > 1 else ""
        if "real" in run:
            more += f" \\\n        --packages PACKAGES --real {run['real']}"
        yield RUN.format(output=output, more=more, **run)
