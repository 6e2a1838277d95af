"""Writes the training record (README.md) that lies beside the reader's weights."""

import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from kcard import encoder
from kcard.llms.span_network import Network
from recipes.reader.score import figures
from recipes.reader.synth import Synthesis, frames

__all__ = ["write_record"]

TEXT = """---
license: apache-2.0
language: en
base_model: {base}
base_model_relation: adapter
library_name: peft
pipeline_tag: question-answering
---

# kcard's embedded reader

A span reader: [CLS] question [SEP] passages [SEP], a linear head for start and end, the first token for
"no answer". It extracts words from what it is given; it does not reason. Base: {base}
(sha256 {sha256}), Apache-2.0.

Made by `python -m recipes.reader.train`: {facts}.
Libraries: torch {torch}, transformers {transformers}, peft {peft}, {machine}.

Training data: invented on the fly by recipes/reader/synth.py ({frames} frames of recipes/reader/frames.txt,
names and nouns of recipes/reader/words.py), written for kcard, Apache-2.0. No question or statement of
MidtermQA, PopQA or WikiDYK is in it (common words, such as sports, occur there too), and no relation about
elections, Nobel prizes or moons.

On fresh invented examples: exact match {exact:.3f} where a passage answers ({count} examples); where none
does, "no answer" {null:.3f}; where one does, wrongly "no answer" {lost:.3f}.
"""


def write_record(folder: Path, network: Network, facts: Mapping[str, object], count: int = 600) -> None:
    fresh = Synthesis(seed=987_654_321)
    examples = [fresh.example() for _ in range(2 * count)]
    found = figures(network, [e for e in examples if e.spans][:count])
    missing = figures(network, [e for e in examples if not e.spans][:count])
    text = TEXT.format(
        base=encoder.NAME,
        sha256=encoder.SHA256,
        facts=", ".join(f"{key} {value}" for key, value in facts.items()),
        machine=f"Python {platform.python_version()} on {platform.machine()}, one thread",
        frames=len(frames()),
        exact=found.exact,
        lost=found.said_nothing,
        null=missing.said_nothing,
        count=found.count,
        **{name: version(name) for name in ("torch", "transformers", "peft")},
    )
    (folder / "README.md").write_text(text, encoding="utf-8")
    print(text.rsplit("\n\n", 1)[-1])
