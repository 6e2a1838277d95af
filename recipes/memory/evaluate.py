"""Measure the embedded memory: python -m recipes.memory.evaluate --path DATA [--weights FOLDER] [--limit N]

DATA contains MidtermQA-openbook.json, popqa-dev.json and wikidyk-dev.json: questions that it should not claim to know,
which are not used in training. Prints a table: the share of questions for which it asks for knowledge, and the AUROC
against trained facts, verbatim and in held-out wordings.
"""

import argparse
import random
from pathlib import Path

import numpy as np

from kcard.llms import embedded_llm as llm
from recipes.memory.calibrate import auroc
from recipes.memory.questions import held_out
from recipes.memory.train import FACTS, read_facts
from recipes.reader.statements import midterm, popqa, wikidyk


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--path", type=Path, required=True)
    parser.add_argument("--weights", type=Path, default=llm.WEIGHTS)
    parser.add_argument("--limit", type=int, default=505)
    options = parser.parse_args()
    torch.set_num_threads(1)
    memory = llm.load(options.weights)
    sample = random.Random(1).sample(list(read_facts(FACTS).items()), 300)

    def least(questions: list[str]) -> np.ndarray:
        return np.array([llm.log_odds(memory.recall(q).least_log_probability) for q in questions])

    plain = least([q for q, _ in sample])
    other = least([form for q, _ in sample if (form := held_out(q))])
    print(f"facts taken as known {(plain > memory.threshold).mean():.3f}", end=", ")
    print(f"in held-out wordings {(other > memory.threshold).mean():.3f}\n")
    print("| set | questions | ask for knowledge | AUROC against facts | in held-out wordings |")
    print("|---|---|---|---|---|")
    for name, source in (("MidtermQA", midterm), ("PopQA", popqa), ("WikiDYK", wikidyk)):
        scores = least([item.question for item in source(options.path)[: options.limit]])
        asks = (scores <= memory.threshold).mean()
        print(
            f"| {name} | {len(scores)} | {asks:.3f} | {auroc(plain, scores):.3f} | {auroc(other, scores):.3f} |"
        )


if __name__ == "__main__":
    main()
