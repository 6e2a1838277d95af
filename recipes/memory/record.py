"""Write the training record (README.md) of the memory's weights."""

import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from recipes.memory.calibrate import Calibration

TEXT = """---
license: apache-2.0
language: en
library_name: transformers
pipeline_tag: text-generation
---

# kcard's embedded memory

An OPT of four layers, from scratch, that answers widely known questions by heart and says "unknown" to others.
It stands for what a language model knows without cards.

Made by `python -m recipes.memory.train`: {facts}.
Libraries: torch {torch}, transformers {transformers}, Python {python} on {machine}, one thread, bf16 autocast.

Training data: recipes/memory/facts.tsv, written for kcard (Apache-2.0), in the wordings of
recipes/memory/questions.py, beside invented questions whose answer is "unknown". No question of
MidtermQA, PopQA or WikiDYK, nothing about the 2022 elections, Nobel prizes or moons.

Recall of learnt facts {recall:.3f}; in held-out wordings {recall_reworded:.3f}. Confidence (log-odds of the least
sure token, logistic of slope {slope:.2f} around {threshold:.2f}): AUROC {auroc:.3f}; learnt facts in held-out
wordings taken as known {known_kept:.3f}; unseen questions that ask for knowledge {unseen_ask:.3f} (facts kept
out of training: {kept_out_ask:.3f}).
"""


def write_record(folder: Path, calibration: Calibration, facts: Mapping[str, object]) -> None:
    text = TEXT.format(
        facts=", ".join(f"{key} {value}" for key, value in facts.items()),
        torch=version("torch"),
        transformers=version("transformers"),
        python=platform.python_version(),
        machine=platform.machine(),
        **vars(calibration),
    )
    (folder / "README.md").write_text(text, encoding="utf-8")
    print(text.rsplit("\n\n", 1)[-1])
