"""Write the training record (README.md) of the base's weights."""

import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

TEXT = """---
license: apache-2.0
language: en
library_name: transformers
pipeline_tag: text-generation
---

# kcard's embedded base

An OPT of four layers, from scratch, that embedded LoRA cards share. It turns a question into a statement that could
answer it, with names that it makes up. An adapter puts the corpus' facts in: the base was trained beside adapters that
began anew with every world of invented facts.

Made by `python -m recipes.base.train`: {facts}.
Libraries: torch {torch}, transformers {transformers}, Python {python} on {machine}, one thread, bf16 autocast.

Training data: invented facts in the wordings of recipes/reader/frames.txt, and recipes/reader/prose.txt, both written
for kcard (Apache-2.0). Names are drawn from recipes/reader/words.txt, syllables, and the words of the vocabulary of
all-MiniLM-L6-v2 (Apache-2.0), as are the tokenizer's. No question of MidtermQA, PopQA or WikiDYK, no relation about
elections, Nobel prizes or moons.

What adapters on it recall: docs/training.md.
"""


def write_record(folder: Path, facts: Mapping[str, object]) -> None:
    text = TEXT.format(
        facts=", ".join(f"{key} {value}" for key, value in facts.items()),
        torch=version("torch"),
        transformers=version("transformers"),
        python=platform.python_version(),
        machine=platform.machine(),
    )
    (folder / "README.md").write_text(text, encoding="utf-8")
