"""Small data sets in the layouts of the papers' tasks, made of the demo's facts: python demo/papers.py FOLDER

    mmlu/                     dev/ and test/ of three subjects
    LUN2.json, LUN4.json      statements as news articles
    MidtermQA-*.json          senate races: openbook, binary, fourchoice
    nq.jsonl, popQA.tsv       capitals, which the embedded LLM knows, and moons, which the demo's card knows
    truthfulqa.json           the same with options

They show that an experiment runs, and nothing of how well an LLM does. The popularities of popQA.tsv and the classes
of LUN are made up.
"""

import argparse
import csv
import json
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CORPORA = ROOT / "demo" / "corpora"
COUNT = 40  # facts of each kind
SHOTS = 5  # demonstrations of each set, 8 of each class of LUN
QUESTIONS = {
    "capital": "What is the capital of {}?",
    "planet": "Which planet does the moon {} orbit?",
    "discoverer": "Who discovered the moon {}?",
}


@dataclass(frozen=True)
class Fact:
    """Something that is asked about, such as France, its relation, such as capital, and the answer."""

    subject: str
    relation: str
    answer: str

    @property
    def question(self) -> str:
        return QUESTIONS[self.relation].format(self.subject)


def facts() -> list[Fact]:
    """Return capitals, the planets of moons and their discoverers, at most COUNT of each."""
    known = (ROOT / "recipes" / "memory" / "facts.tsv").read_text(encoding="utf-8")
    planets = (CORPORA / "moons" / "planets.txt").read_text(encoding="utf-8")
    discoverers = (CORPORA / "moons" / "discoverers.txt").read_text(encoding="utf-8")
    pairs = {
        "capital": re.findall(r"^What is the capital of ([\w ]+)\?\t(\w+)$", known, re.MULTILINE),
        "planet": re.findall(r"^(\w+) is a moon of (\w+)\.$", planets, re.MULTILINE),
        "discoverer": [
            (moon, name)
            for name, moon in re.findall(r"^([\w ]+) discovered (\w+), a moon of", discoverers, re.MULTILINE)
        ],
    }
    return [Fact(subject, name, answer) for name, own in pairs.items() for subject, answer in own[:COUNT]]


def races() -> list[tuple[str, str]]:
    """Return the states with a senate race in 2022 and the winners."""
    text = (CORPORA / "midterms-2022" / "senate.txt").read_text(encoding="utf-8")
    return [
        (state, winner)
        for winner, state in re.findall(
            r"^(.+) won ([A-Z][\w ]+)'s Senate race in 2022\.$", text, re.MULTILINE
        )
    ]


def options(right: str, others: Iterable[str], count: int, rng: random.Random) -> tuple[list[str], int]:
    """Return `count` different options in a drawn order, and the place of the right one."""
    wrong = rng.sample(sorted(set(others) - {right}), count - 1)
    drawn = [right, *wrong]
    rng.shuffle(drawn)
    return drawn, drawn.index(right)


def write_sets(folder: Path) -> None:
    """Write all sets. They are the same each time."""
    folder.mkdir(parents=True, exist_ok=True)
    rng, all_facts = random.Random(0), facts()
    rng.shuffle(all_facts)
    answers = {
        relation: [fact.answer for fact in all_facts if fact.relation == relation] for relation in QUESTIONS
    }
    write_mmlu(folder / "mmlu", all_facts, answers, rng)
    write_lun(folder, all_facts)
    write_midterm(folder, rng)

    # Questions with answers, with the popularity of their subject, and with options.
    lines = [{"question": fact.question, "answer": [fact.answer]} for fact in all_facts]
    (folder / "nq.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    with (folder / "popQA.tsv").open("w", encoding="utf-8", newline="") as stream:
        table = csv.writer(stream, delimiter="\t")
        table.writerow(["id", "subj", "prop", "obj", "s_pop", "question", "possible_answers"])
        for number, fact in enumerate(all_facts):
            popularity = rng.randint(5_000, 50_000) if fact.relation == "capital" else rng.randint(50, 5_000)
            accepted = json.dumps([fact.answer])
            table.writerow(
                [number, fact.subject, fact.relation, fact.answer, popularity, fact.question, accepted]
            )
    choices: list[dict[str, Any]] = []
    for fact in all_facts:
        texts, place = options(fact.answer, answers[fact.relation], 4, rng)
        lettered = dict(zip("ABCD", texts, strict=True))
        choices.append({"question": fact.question, "choices": lettered, "answer": "ABCD"[place]})
    (folder / "truthfulqa.json").write_text(json.dumps(choices, indent=1) + "\n", encoding="utf-8")


def write_mmlu(
    folder: Path, all_facts: Sequence[Fact], answers: dict[str, list[str]], rng: random.Random
) -> None:
    """Write MMLU's folders: geography and astronomy with the facts, politics with the senate races."""
    subjects = {
        "high_school_geography": [fact for fact in all_facts if fact.relation == "capital"],
        "astronomy": [fact for fact in all_facts if fact.relation == "planet"],
    }
    rows = {
        subject: [(fact.question, *options(fact.answer, answers[fact.relation], 4, rng)) for fact in own]
        for subject, own in subjects.items()
    }
    winners = [winner for _, winner in races()]
    rows["high_school_government_and_politics"] = [
        (f"Who won the Senate race of {state} in 2022?", *options(winner, winners, 4, rng))
        for state, winner in races()
    ]
    for split, part in (("dev", slice(0, SHOTS)), ("test", slice(SHOTS, None))):
        (folder / split).mkdir(parents=True, exist_ok=True)
        for subject, own in rows.items():
            with (folder / split / f"{subject}_{split}.csv").open(
                "w", encoding="utf-8", newline=""
            ) as stream:
                csv.writer(stream).writerows(
                    [question, *texts, "ABCD"[place]] for question, texts, place in own[part]
                )


def write_lun(folder: Path, all_facts: Sequence[Fact]) -> None:
    """Write both files of LUN: true statements about moons and false ones, in four tones for the four classes."""
    tones = {
        "trusted": "Astronomers confirm that the moon {} orbits {}.",
        "propaganda": "They never told you this: the moon {} orbits {}, and they know it!",
        "hoax": "Shocking discovery: the moon {} has left its planet for {}.",
        "satire": "Local man is sure that the moon {} orbits {}, since it told him so.",
    }
    moons = [fact for fact in all_facts if fact.relation == "planet"]
    rows: dict[str, list[dict[str, Any]]] = {"LUN2": [], "LUN4": []}
    for number, moon in enumerate(moons):
        label = list(tones)[number % 4]
        is_true = label in ("trusted", "propaganda")
        text = tones[label].format(moon.subject, moon.answer if is_true else "Venus")
        rows["LUN4"].append({"id": number, "text": text, "label": label})
        rows["LUN2"].append({"id": number, "text": text, "label": "true" if is_true else "false"})
    for name, classes in (("LUN2", ["true", "false"]), ("LUN4", list(tones))):
        sets = {"demos": rows[name][:16], "testset": rows[name][16:]}
        data = {"dataset": name, "potential_labels": classes, **sets}
        (folder / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def write_midterm(folder: Path, rng: random.Random) -> None:
    """Write the three files of MidtermQA: the winner, two options, four options."""
    own = races()
    winners = [winner for _, winner in own]
    for name, count in (("openbook", 0), ("binary", 2), ("fourchoice", 4)):
        rows = []
        for number, (state, winner) in enumerate(own):
            question = f"Who won the senate race of {state} in the 2022 U.S. midterm elections?"
            answer = winner
            if count:
                texts, place = options(winner, winners, count, rng)
                letters = "ABCD"[:count]
                question += "\n" + " ".join(f"{a}. {b}" for a, b in zip(letters, texts, strict=True))
                answer = letters[place]
            rows.append({"question": question, "answer": answer, "id": number})
        data = {"dataset": f"MidtermQA-{name}", "demos": rows[:SHOTS], "testset": rows[SHOTS:]}
        path = folder / f"MidtermQA-{name}.json"
        path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the files are written")
    write_sets(parser.parse_args().folder)


if __name__ == "__main__":
    main()
