"""What an adapter knows by heart after prompt distillation, recitation and plain language modelling.

    python -m benchmarks.distillation --folder distillation [--seeds 0 1]
    python -m benchmarks.distillation --base MODEL --corpus FILE --study FILE --questions FILE

The first form trains a small Llama on thousands of invented worlds, until it answers from the passage in its prompt,
and keeps it in the folder (benchmarks/distillation_worlds.py). Cards on it then learn a new world: its passages, and
all wordings of the questions but one, in which they are asked. The second form does the same with a model of the hub,
a corpus, study material (`kcard study`) and questions, JSON lines with "question", "answer" and, if all have one,
"passage".

All objectives take equally many steps of equally many rows. An answer is right if it holds the expected one. "As asked"
is by the card's own prompt, "as a question" by the prompt that the base answers.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.distillation_worlds import HELD_OUT, TOWNS, WORDINGS, base, world
from benchmarks.recall import Question, holds, rows, share
from kcard.cards.format.folder import Card
from kcard.cards.lm.prompt_styles import prompt_ids
from kcard.llms.generation import Draw, generate
from kcard.training.adapter import quiet_peft
from kcard.training.corpus import read_corpus
from kcard.training.distillation.prompts import answer_prompts
from kcard.training.study.item import StudyItem, read_study, write_study
from kcard.training.token_blocks import TokenBlocks
from kcard.training.train import train
from kcard.words import passage_digest

ROWS = 16  # a step
TOKENS = 48  # of an answer
AT_ONCE = 32
CARDS = ("clm", "recite", "recite, study", "distil")
COLUMNS = ("card", "seed", "steps", "seconds", "as asked", "as a question", "studied wordings")


@dataclass(frozen=True)
class Material:
    """`asked`: questions in wordings that are not studied, with their passages; `studied`: some that are."""

    corpus: Path
    study: Path
    asked: Sequence[tuple[Question, str]]
    studied: Sequence[Question]


def main() -> None:
    args = _arguments()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or Path(scratch)
        model = args.base or str(base(folder / "base", args.base_steps))
        found = []
        for seed in args.seeds:
            place = folder / f"seed-{seed}"
            place.mkdir(parents=True, exist_ok=True)
            material = _given(args) if args.base else invented(place, seed, args.towns)
            found += measured(model, material, place, seed, args)
    print(json.dumps(found) if args.json else rows(COLUMNS, found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where the small Llama and the cards are kept")
    parser.add_argument("--base", help="a model of the hub, or a folder")
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--study", type=Path)
    parser.add_argument("--questions", type=Path)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--towns", type=int, default=TOWNS, help="of an invented world")
    parser.add_argument("--base-steps", type=int, default=200)
    parser.add_argument("--steps", type=int, default=600, help="of each card")
    parser.add_argument("--rate", type=float, default=2e-3, help="learning rate")
    parser.add_argument("--temperatures", nargs="*", type=float, default=[2.0], help="of distillation")
    parser.add_argument("--cards", nargs="*", choices=CARDS, default=CARDS)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.base and not (args.corpus and args.study and args.questions):
        parser.error("--base needs --corpus, --study and --questions")
    return args


def invented(folder: Path, seed: int, towns: int) -> Material:
    """A world of `seed`, written to the folder."""
    facts = world(f"new {seed}", towns)
    corpus, study = folder / "corpus.jsonl", folder / "study.jsonl"
    lines = [json.dumps({"text": fact.statement}) + "\n" for fact in facts]
    corpus.write_text("".join(lines), encoding="utf-8")
    learned, asked = range(WORDINGS - HELD_OUT), range(WORDINGS - HELD_OUT, WORDINGS)
    items = [
        StudyItem("direct", fact.question(n), fact.answer, (passage_digest(fact.statement),), "invented")
        for fact in facts
        for n in learned
    ]
    write_study(study, items)
    questions = [
        (Question(fact.question(n), (fact.answer,)), fact.statement) for fact in facts for n in asked
    ]
    return Material(corpus, study, questions, [Question(item.text, (item.answer,)) for item in items[::3]])


def _given(args: argparse.Namespace) -> Material:
    lines = args.questions.read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines if line.strip()]
    asked = [(Question(row["question"], (row["answer"],)), row.get("passage", "")) for row in found]
    studied = [Question(item.text, (item.answer,)) for item in read_study(args.study).items if item.answer]
    return Material(args.corpus, args.study, asked, studied[:200])


def measured(
    model: str, material: Material, folder: Path, seed: int, args: argparse.Namespace
) -> list[dict[str, Any]]:
    """A row for the base alone, one for the base that reads the passage, and one a card."""
    asker = Asker(model)
    plain = asker.prompts.student
    found = [{"card": "none, base alone", "seed": seed, **asker.recall(material, plain)}]
    if all(passage for _, passage in material.asked):
        told = [asker.prompts.told(passage, asked.text) for asked, passage in material.asked]
        read = asker.right(told, [asked for asked, _ in material.asked], line=True)
        found.append({"card": "none, passage in the prompt", "seed": seed, "as a question": read})
    for name, options in _ways(material, args.temperatures):
        if name.partition(", T")[0] not in args.cards:
            continue
        print(f"training: {name}, seed {seed}", file=sys.stderr)
        begun = time.process_time()
        card = train(
            material.corpus,
            name=folder.name,
            kind="model",
            base=model,
            method="lora",
            output=folder / name.replace(" ", "-").replace(",", ""),
            seed=seed,
            batch_size=ROWS,
            learning_rate=args.rate,
            epochs=args.steps / _steps_an_epoch(material, options, asker.tokenizer),
            **options,
        )
        seconds = round(time.process_time() - begun)
        steps = card.manifest.training.hyperparameters["steps"]
        recalled = Asker(model, card).recall(material, plain)
        found.append({"card": name, "seed": seed, "steps": steps, "seconds": seconds, **recalled})
        print(found[-1], file=sys.stderr)
    return found


def _ways(material: Material, temperatures: Sequence[float]) -> list[tuple[str, dict[str, Any]]]:
    distil: dict[str, Any] = {"objective": "distil", "study": material.study}
    ways: list[tuple[str, dict[str, Any]]] = [
        ("clm", {"objective": "clm", "block": 64}),
        ("recite", {"objective": "recite", "study": "none"}),
        ("recite, study", {"objective": "recite", "study": material.study}),
    ]
    return ways + [(f"distil, T {t:g}", {**distil, "teacher_temperature": t}) for t in temperatures]


def _steps_an_epoch(material: Material, options: dict[str, Any], tokenizer: Any) -> int:
    if options["objective"] == "distil":
        count = sum(bool(item.answer) for item in read_study(options["study"]).items)
    elif options["objective"] == "recite":
        count = len(read_corpus(material.corpus).texts)
    else:
        documents = read_corpus(material.corpus, whole=True).documents
        assert documents is not None
        count = len(TokenBlocks(documents, tokenizer, options["block"]))
    return -(-count // ROWS)


class Asker:
    """A base, or a card on it, that answers greedily."""

    def __init__(self, model: str, card: Card | None = None) -> None:
        import torch
        from peft import PeftModel
        from transformers import AutoModelForCausalLM, AutoTokenizer

        device = "cuda" if torch.cuda.is_available() else "cpu"
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        self.tokenizer: Any = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
        found: Any = AutoModelForCausalLM.from_pretrained(model, dtype=dtype, trust_remote_code=False)
        self.model: Any = found.to(device)
        self.prompts = answer_prompts(self.tokenizer)
        self.template = self.prompts.student
        if card is not None:
            with quiet_peft():
                self.model = PeftModel.from_pretrained(self.model, card.folder)
            self.template = card.manifest.prompt.template
        self.model.eval()

    def recall(self, material: Material, plain: str) -> dict[str, float]:
        asked = [asked for asked, _ in material.asked]
        return {
            "as asked": self.right(_filled(self.template, asked), asked),
            "as a question": self.right(_filled(plain, asked), asked, line=True),
            "studied wordings": self.right(_filled(plain, material.studied), material.studied, line=True),
        }

    def right(self, prompts: Sequence[str], questions: Sequence[Question], *, line: bool = False) -> float:
        """Share of questions whose answer stands in what is written after the prompts; `line`: on its first line,
        where a model without a chat template ends an answer."""
        order = sorted(range(len(prompts)), key=lambda place: len(prompts[place]))
        hits = []
        for start in range(0, len(order), AT_ONCE):
            places = order[start : start + AT_ONCE]
            rows = [prompt_ids(self.tokenizer, prompts[place]) for place in places]
            pad = self.tokenizer.pad_token_id or self.tokenizer.eos_token_id
            found = generate(self.model, rows, TOKENS, [Draw()] * len(rows), padding=pad)
            for place, row in zip(places, found, strict=True):
                text = str(self.tokenizer.decode(row.tokens, skip_special_tokens=True))
                if line and self.prompts.one_line:
                    text = text.strip().partition("\n")[0]
                hits.append(holds(text, questions[place]))
        return share(hits)


def _filled(template: str, questions: Sequence[Question]) -> list[str]:
    return [template.replace("{question}", asked.text) for asked in questions]


if __name__ == "__main__":
    main()
