"""Writes the training record (README.md) that lies beside the reader's weights."""

import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from kcard import encoder
from kcard.llms.span_network import Network
from recipes.reader.prose import Prose, kept_out, texts
from recipes.reader.score import figures
from recipes.reader.synth import Synthesis, frames

__all__ = ["write_record"]

TEXT = """---
license: cc-by-sa-3.0
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

Training data, a share of the examples each: {shares}.
- invented: recipes/reader/synth.py ({frames} frames of frames.txt, names and nouns of words.py), written for kcard,
  Apache-2.0;
- prose: recipes/reader/prose.txt, {texts} short texts and their questions, written for kcard, Apache-2.0;
- cloze: claims of VitaminC that their evidence supports (Schuster et al., 2021), a phrase of the claim asked for in the
  evidence; CC BY-SA 3.0, as are these weights.

No question or statement of MidtermQA, PopQA, WikiDYK or XQuAD is in it (common words, such as sports, occur there too).

On fresh invented examples: exact match {exact:.3f} where a passage answers ({count} examples); where none does, "no
answer" {null:.3f}; where one does, wrongly "no answer" {lost:.3f}. On prose that was kept out ({asked} examples,
distractors of the same text among the passages): exact match {prose:.3f}, "no answer" where none does {prose_null:.3f}.
"""


def write_record(
    folder: Path,
    network: Network,
    facts: Mapping[str, object],
    shares: Mapping[str, float],
    count: int = 600,
) -> None:
    """Measure the network and write what it is, what it learned from and how well it reads."""
    fresh = Synthesis(seed=987_654_321)
    examples = [fresh.example() for _ in range(2 * count)]
    found = figures(network, [e for e in examples if e.spans][:count])
    missing = figures(network, [e for e in examples if not e.spans][:count])
    reading = Prose(seed=987_654_321, source=kept_out())
    read = [reading.example() for _ in range(count)]
    answered = figures(network, [e for e in read if e.spans])
    unanswered = figures(network, [e for e in read if not e.spans])
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
        shares=", ".join(f"{name} {share}" for name, share in shares.items()),
        texts=len(texts()),
        asked=count,
        prose=answered.exact,
        prose_null=unanswered.said_nothing,
        **{name: version(name) for name in ("torch", "transformers", "peft")},
    )
    (folder / "README.md").write_text(text, encoding="utf-8")
    print(text.rsplit("\n\n", 1)[-1])
