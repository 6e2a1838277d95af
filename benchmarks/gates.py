"""Comparison of all gates on facts of which the LLM knows some and a card others.

    python -m benchmarks.gates --path popqa-dev.json [--kind retrieval] [--memory played] [--output FOLDER] [--json]

The facts are PopQA's (question, answers, popularity of the subject), as statements. Two worlds:

    popular      the card was trained on the less popular half; the LLM's knowledge rises smoothly with the logarithm of
                 popularity, by relation
    independent  the card was trained on a random half, and the LLM knows a random half; popularity is uninformative, so
                 its gate must not win

Which facts the LLM knows is simulated (benchmarks/simulated_memory.py). The answers are not: a card generates, the
embedded reader reads, and the memory is a closed-book model trained on the known facts. In each world the gates are
compared as by `kcard calibrate`, and the popularity gate's thresholds with those of a brute-force search.

`--wikidyk` adds a third world of free-form questions, without popularity: records for benchmarks/thrust_ablations.py.
`--output` stores the records and the curves (which need matplotlib).
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import kcard
from benchmarks.prompt_styles import stated
from benchmarks.recall import rows
from benchmarks.simulated_memory import Rule, known_facts, remembering, taught
from kcard.api.gates import CalibrationResult, calibrate
from kcard.evaluation.gates.calibration import calibration_data
from kcard.evaluation.gates.outcome import METRICS, scores_both_ways
from kcard.gates.base import Resources, find
from kcard.gates.features import MiniLMRepresentation
from kcard.gates.popularity import BOUND, BUILT_IN, Popularity, Relations, templates
from kcard.gates.records import Record, write_records
from kcard.hub.registry import Hub
from kcard.integrators.pipeline import Pipeline
from kcard.interfaces import LLM
from kcard.llms.embedded_llm import EmbeddedLLM
from kcard.types import Request

BATCH = 64
SHARE = 0.5
# Two wordings of each relation, of the subject {s} and the object {o}.
STATEMENTS = {
    "author": ("{o} is the author of {s}.", "{s} was written by {o}."),
    "capital": ("The capital of {s} is {o}.", "{o} is the capital of {s}."),
    "capital of": ("{s} is the capital of {o}.", "The capital of {o} is {s}."),
    "color": ("The color of {s} is {o}.", "{s} has the color {o}."),
    "composer": ("{o} was the composer of {s}.", "{s} was composed by {o}."),
    "country": ("{s} is in {o}.", "{s} lies in the country of {o}."),
    "director": ("{o} was the director of {s}.", "{s} was directed by {o}."),
    "father": ("{o} is the father of {s}.", "{s} has {o} as father."),
    "genre": ("The genre of {s} is {o}.", "{s} belongs to the genre {o}."),
    "mother": ("{o} is the mother of {s}.", "{s} has {o} as mother."),
    "occupation": ("The occupation of {s} is {o}.", "{s} works as {o}."),
    "place of birth": ("{s} was born in {o}.", "The birthplace of {s} is {o}."),
    "producer": ("{o} was the producer of {s}.", "{s} was produced by {o}."),
    "religion": ("The religion of {s} is {o}.", "{s} follows the religion {o}."),
    "screenwriter": ("{o} was the screenwriter for {s}.", "The screenplay of {s} is by {o}."),
    "sport": ("{s} plays {o}.", "The sport of {s} is {o}."),
}  # fmt: skip


@dataclass(frozen=True)
class Fact:
    question: str
    answers: tuple[str, ...]
    statements: tuple[str, ...]
    relation: str | None = None
    popularity: float | None = None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", type=Path, required=True, help="popqa-dev.json")
    parser.add_argument("--wikidyk", type=Path, help="wikidyk-dev.json, of which 400 facts are used")
    parser.add_argument("--kind", choices=("model", "retrieval", "both"), default="model", help="of the card")
    parser.add_argument("--memory", choices=("trained", "played"), default="trained")
    parser.add_argument("--seconds", type=float, default=60, help="CPU time of a trained memory")
    parser.add_argument("--every", type=int, default=1, help="only every Nth fact")
    parser.add_argument("--budget", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="a folder for the records and the curves")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    popqa = popqa_facts(args.path)[:: args.every]
    worlds: list[tuple[str, list[Fact], Rule]] = [
        ("popqa-popular", popqa, "popular"),
        ("popqa-independent", popqa, "independent"),
    ]
    if args.wikidyk:
        worlds.append(("wikidyk", wikidyk_facts(args.wikidyk)[:: args.every], "independent"))
    if args.output:
        args.output.mkdir(parents=True, exist_ok=True)
    reports = []
    for name, facts, rule in worlds:
        with tempfile.TemporaryDirectory() as scratch:
            reports.append(world(name, facts, rule, Path(scratch), args))
    print(json.dumps(reports) if args.json else "\n\n".join(map(table, reports)))


def popqa_facts(path: Path) -> list[Fact]:
    """Its relation is that of the nearest question template, which its wording then is an instance of."""
    data = json.loads(path.read_text(encoding="utf-8"))["rows"]
    questions = [row["input"] for row in data]
    encoder = MiniLMRepresentation()
    nearest = Relations.of(templates("popqa"), encoder).nearest(questions, encoder, 0)
    wordings = json.loads(BUILT_IN.read_text(encoding="utf-8"))
    facts, strange = [], 0
    for row, relation in zip(data, nearest, strict=True):
        before, _, after = wordings[relation].partition("{}")
        question, answers = row["input"], tuple(json.loads(row["output"]))
        if not (question.startswith(before) and question.endswith(after)):
            strange += 1
            continue
        subject = question[len(before) : len(question) - len(after)]
        statements = tuple(form.format(s=subject, o=answers[0]) for form in STATEMENTS[str(relation)])
        facts.append(Fact(question, answers, statements, relation, float(row["s_pop"])))
    if strange:
        print(f"{strange} questions are not worded as their nearest relation and left out", file=sys.stderr)
    return facts


def wikidyk_facts(path: Path, count: int = 400) -> list[Fact]:
    data = json.loads(path.read_text(encoding="utf-8"))["rows"][:count]
    return [Fact(row["input"], (row["output"],), (stated(row["fact"]),)) for row in data]


def world(
    name: str, facts: Sequence[Fact], rule: Rule, scratch: Path, args: argparse.Namespace
) -> dict[str, Any]:
    """Card, memory, records and gates of one world."""
    begun = time.monotonic()
    popularity = [fact.popularity or 0.0 for fact in facts]
    knows = known_facts(popularity, [fact.relation or "" for fact in facts], rule, SHARE, args.seed)
    covered = carded(facts, rule, args.seed)
    pipeline = asked_cards(scratch, [f for f, has in zip(facts, covered, strict=True) if has], args)
    documents = knowledge(pipeline, [fact.question for fact in facts])
    say(f"{name}: cards were used, {time.monotonic() - begun:.0f} s")
    memory = taught(
        {f.question: f.answers[0] for f, has in zip(facts, knows, strict=True) if has},
        [f.question for f, has in zip(facts, knows, strict=True) if not has],
        args.memory, args.seconds, args.seed,
    )  # fmt: skip
    say(f"{name}: the memory knows {sum(knows)} facts, {time.monotonic() - begun:.0f} s")
    with remembering(memory):
        records = recorded(facts, documents, EmbeddedLLM())
        result = calibrate(
            records, budget=args.budget, llm=EmbeddedLLM(), seed=args.seed, on_event=lambda e: say(e.message)
        )
    if args.output:
        keep_result(result, records, args.output / name)
    report = {"world": name, "card": args.kind, "memory": args.memory, **calibration_data(result.comparison)}
    if rule == "popular":
        report["thresholds"] = equal_to_brute_force(records)
    if name == "popqa-independent":
        report["popularity must not win"] = result.gate != "popularity"
    return report | {"recommendation": result.choice.text, "seconds": round(time.monotonic() - begun)}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def carded(facts: Sequence[Fact], rule: Rule, seed: int) -> list[bool]:
    """Which facts the card learns: the less popular half, or a random one."""
    if rule == "independent":
        chosen = set(np.random.default_rng(seed + 1).permutation(len(facts))[: len(facts) // 2].tolist())
        return [i in chosen for i in range(len(facts))]
    middle = float(np.median([fact.popularity or 0.0 for fact in facts]))
    return [(fact.popularity or 0.0) < middle for fact in facts]


def asked_cards(scratch: Path, facts: Sequence[Fact], args: argparse.Namespace) -> Pipeline:
    """A pipeline that asks one card, which learned the facts, for every question."""
    corpus = scratch / "facts.txt"
    corpus.write_text("".join(f"{told}\n" for fact in facts for told in fact.statements), encoding="utf-8")
    training = {} if args.kind == "retrieval" else {"base": "embedded", "minutes": 600, "seed": args.seed}
    card = kcard.train(
        corpus, kind=args.kind, name="facts", description="Facts about people, works and places",
        output=scratch / "card", exam=False, **training,
    )  # fmt: skip
    hub = Hub(scratch / "hub")
    hub.publish(card.folder)
    return Pipeline(hub=hub, mode="bottom-up", gate="always", llm=Silent(), seed=args.seed)


class Silent(LLM):
    """An LLM that says nothing: what cards write does not depend on who reads it."""

    def reply(self, request: Request) -> Any:
        from kcard.types import Reply

        del request
        return Reply("-")


def knowledge(pipeline: Pipeline, questions: Sequence[str]) -> list[tuple[str, ...]]:
    """What reaches the LLM for each question when cards are asked."""
    answers = []
    for start in range(0, len(questions), BATCH):
        for answer in pipeline(questions[start : start + BATCH]):
            answers.append(tuple(passage.knowledge for passage in answer.passages if passage.kept))
    return answers


def recorded(facts: Sequence[Fact], documents: Sequence[tuple[str, ...]], llm: LLM) -> list[Record]:
    """Each question answered without and with knowledge, by substring accuracy as in Adaptive Retrieval."""
    score, rows = METRICS["substring"], []
    for fact, texts in zip(facts, documents, strict=True):
        without = llm.reply(Request("answer", fact.question)).text
        with_ = llm.reply(Request("answer", fact.question, texts)).text
        record = Record(fact.question, score(without, fact.answers), score(with_, fact.answers), fact.answers)
        rows.append(
            replace(
                record,
                relation=fact.relation,
                popularity=fact.popularity,
                answer_without=without,
                answer_with=with_,
            )
        )
    return rows


def keep_result(result: CalibrationResult, records: Sequence[Record], path: Path) -> None:
    from kcard.errors import MissingExtra
    from kcard.evaluation.gates.calibration import write_plot

    write_records(path.with_suffix(".jsonl"), records)
    try:
        write_plot(result.comparison, path.with_suffix(".png"))
    except MissingExtra as error:
        say(str(error))


def equal_to_brute_force(records: Sequence[Record]) -> dict[str, float]:
    """The popularity gate's threshold of each relation, once it is shown that no other one is better.

    Brute force tries every place between two popularities of the relation, and either end.
    """
    fitted = find("popularity").fit(records, {}, Resources(representation=MiniLMRepresentation()))
    assert isinstance(fitted, Popularity)
    for relation, threshold in fitted.thresholds.items():
        own = [record for record in records if record.relation == relation]
        logs = np.log1p([record.popularity or 0.0 for record in own])
        without, with_ = scores_both_ways(own)

        def right(limit: float, logs: Any = logs, without: Any = without, with_: Any = with_) -> float:
            return round(float(np.where(logs < limit, with_, without).mean()), 9)

        ends = np.unique(logs)
        tried = [-BOUND, *((ends[1:] + ends[:-1]) / 2).tolist(), BOUND]
        best = max(map(right, tried))
        first = next(limit for limit in tried if right(limit) == best)
        assert right(threshold) == best, (relation, threshold, best)
        assert ((logs < threshold) == (logs < first)).all(), (relation, threshold, first)
    return {relation: round(float(np.expm1(min(t, 50.0))), 1) for relation, t in fitted.thresholds.items()}


def table(report: dict[str, Any]) -> str:
    columns = ("gate", "accuracy", "interval", "asks cards", "random", "guidance", "gain", "p, all gates")
    lines = [
        {
            "gate": row["gate"],
            "accuracy": f"{row['accuracy']:.3f}",
            "interval": "{:.3f} to {:.3f}".format(*row["interval"]),
            "asks cards": f"{row['share']:.0%}",
            "random": f"{row['random_same_share']:.3f}",
            "guidance": "-" if row["beneficial_guidance"] is None else f"{row['beneficial_guidance']:.0%}",
            "gain": f"{row['difference']:+.3f}",
            "p, all gates": f"{row['p_holm']:.2g}",
        }
        for row in sorted(report["gates"], key=lambda row: -float(row["accuracy"]))
    ]
    head = (
        f"{report['world']}: {report['n']} questions, card {report['card']}, memory {report['memory']}; never "
        f"{report['never']:.3f}, always {report['always']:.3f}, oracle {report['oracle']:.3f}"
    )
    left_out = "".join(f"\nnot compared: {row['gate']}: {row['why']}" for row in report["skipped"])
    return f"{head}\n\n{rows(columns, lines)}\n\n{report['recommendation']}{left_out}"


if __name__ == "__main__":
    main()
