"""Writes the training record (README.md) that lies beside the reader's weights."""

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from kcard.embedded import minilm
from kcard.embedded.reader import load_reader
from recipes.reader.example import Reading
from recipes.reader.score import Figures, figures

TEXT = """---
license: cc-by-sa-4.0
language: en
base_model: {base}
base_model_relation: finetune
pipeline_tag: question-answering
---

# kcard's embedded reader

It reads `[CLS] question [SEP] headings: text [SEP]` and says whether the text answers the question, with which words,
and on which sentences the answer rests. It extracts; it does not reason.
Base: {base} (sha256 {sha256}), Apache-2.0, trained whole but for its embeddings; the file holds the
matrices of its layers in steps of 7 bits, with a step for each output.

Made by `python -m recipes.reader.train`: {facts}.
Libraries: torch {torch}, transformers {transformers}, {machine}.

Training data:
- questions about Wikipedia articles: SQuAD 1.1 (Rajpurkar et al., 2016; CC BY-SA 4.0), a part of its development set;
  Natural Questions (Kwiatkowski et al., 2019; CC BY-SA 3.0); HotpotQA (Yang et al., 2018; CC BY-SA 4.0);
  2WikiMultihopQA (Ho et al., 2020; Apache-2.0), questions with their supporting paragraphs and distractors;
- questions about texts of many kinds (recipes/reader/datasets.py): SQuADShifts (Miller et al., 2020; CC BY 4.0),
  FairytaleQA (Xu et al., 2022; Apache-2.0), QAMR (Michael et al., 2018; MIT, texts CC BY-SA 3.0 and CC BY 2.5), BoolQ
  (Clark et al., 2019; CC BY-SA 3.0), sentences of SQuAD 1.1 (CC BY-SA 4.0), Natural Questions (CC BY-SA 3.0), COVID-QA
  (Möller et al., 2020; Apache-2.0, articles CC BY), ClapNQ (Rosenthal et al., 2024; Apache-2.0, texts CC BY-SA 3.0),
  Molweni (Li et al., 2020; Apache-2.0), StrategyQA (Geva et al., 2021; MIT), PubMedQA (Jin et al., 2019; MIT), and some
  of their questions beside texts that do not answer them;
- questions about manuals of Debian and npm packages and about paragraphs of Wikipedia (recipes/reader/questions),
  written for kcard, Apache-2.0; a tenth of them without an answer;
- claims of VitaminC as questions of yes or no (Schuster et al., 2021; CC BY-SA 3.0);
- invented statements and short texts (recipes/reader/synth.py, prose.py), written for kcard, Apache-2.0.

Held out: every fourth article of SQuAD, every fourth question of NQ, nine of the manuals, the `dev` files of the sets,
split by document. Exact match and F1 of words
where a text answers in words; AUROC of texts that answer against the likest that do not; whether the likeliest sentence
is one that the answer rests on.

{table}

How sure an answer is (calibration.json): `python -m recipes.reader.calibrate`, on the manuals that were held out.
"""


def table(measured: Mapping[str, Figures]) -> str:
    """Figures of several sets as a Markdown table."""
    lines = ["| held out | questions | EM | F1 | AUROC | sentence | ms a text |", "|---" * 7 + "|"]
    for name, row in measured.items():
        shares = (row.exact, row.f1, row.auroc, row.sentence)
        cells = " | ".join("-" if share is None else f"{share:.3f}" for share in shares)
        lines.append(f"| {name} | {row.questions} | {cells} | {row.milliseconds:.0f} |")
    return "\n".join(lines)


def write_record(
    folder: Path, facts: Mapping[str, object], held_out: Mapping[str, Sequence[Reading]]
) -> None:
    """Measure the weights in the folder and write what they are, what they learned from and how well they read."""
    network = load_reader(folder)
    measured = table({name: figures(network, readings) for name, readings in held_out.items()})
    text = TEXT.format(
        base=minilm.NAME,
        sha256=minilm.SHA256,
        facts=", ".join(f"{key} {value}" for key, value in facts.items()),
        machine=f"Python {platform.python_version()} on {platform.machine()}",
        table=measured,
        **{name: version(name) for name in ("torch", "transformers")},
    )
    (folder / "README.md").write_text(text, encoding="utf-8")
    print(measured)
