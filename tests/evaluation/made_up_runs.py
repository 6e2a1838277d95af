"""Runs with made-up results: which settings are right is drawn from a seed."""

import random
from collections.abc import Mapping
from typing import Any

from kcard.evaluation.runs.results import EvalResult, RecordedCall
from kcard.evaluation.runs.run import Run, RunPlan, RunTask

__all__ = ["TASKS", "made_up_result", "made_up_results", "made_up_run"]

# How often a setting is right, its calls of the LLM and its seconds a question.
SETTINGS: Mapping[str, tuple[float, int, float]] = {
    "direct": (0.2, 1, 0.4),
    "bottom-up": (0.65, 1, 2.5),
    "top-down:auto": (0.7, 3, 1.6),
    "top-down:explicit": (0.5, 3, 1.7),
    "retrieval": (0.6, 1, 0.8),
}
TASKS = {"midterm": "em", "midterm-binary": "accuracy"}
GROUPS = ("house", "senate", "governor")
CARDS = ("midterms-2022", "rivers", "nobel-prizes")
NAMES = ("Ana Ruiz", "Bo Lind", "Cy Young", "Dee Park")


def made_up_run(
    tasks: Mapping[str, str] = TASKS, settings: tuple[str, ...] = tuple(SETTINGS), questions: int = 30
) -> Run:
    ids = tuple(f"q{i}" for i in range(questions))
    plan = RunPlan(
        ("eval", *tasks, "--settings", ",".join(settings)),
        tuple(
            RunTask(name, f"{name}.json", "ab" * 32, metric, ids, questions) for name, metric in tasks.items()
        ),
        settings,
        "embedded",
        cards={f"{card}@v1": "cd" * 32 for card in CARDS},
        versions={"kcard": "0.1.0", "Python": "3.12"},
    )
    return Run(3, "2026-01-02T03:04:05+00:00", plan, plan.planned, 0)


def made_up_results(run: Run, seed: int = 0) -> list[EvalResult]:
    """One for every question, task and setting; half of the questions are easier than the others."""
    chance, results = random.Random(seed), []
    metrics = {task.name: task.metric for task in run.plan.tasks}
    for task, setting, question in run.plan.keys():  # noqa: SIM118
        share, calls, seconds = SETTINGS[setting]
        number = int(question[1:])
        right = chance.random() < share + (0.15 if number % 2 else -0.15)
        answer, wrong = NAMES[number % 4], NAMES[(number + 1) % 4]
        reply = answer if right else wrong
        choice = metrics[task] == "accuracy"
        choices = {"A": answer, "B": wrong} if choice else {}
        value = float(right)
        results.append(
            EvalResult(
                task=task,
                setting=setting,
                id=question,
                question=f"Who won the {GROUPS[number % 3]} race of district {number} in 2022?",
                answers=("A",) if choice else (answer,),
                prediction=("A" if right else "B") if choice else reply,
                scores=dict.fromkeys(("em", "f1", "substring", *(["accuracy"] if choice else [])), value),
                choices=choices,
                group=GROUPS[number % 3],
                calls=tuple(
                    RecordedCall(
                        "answer" if i == calls - 1 else "need",
                        f"Question {number}\nAnswer:",
                        reply,
                        210,
                        6,
                        0.3,
                    )
                    for i in range(calls)
                ),
                tokens_in=210 * calls,
                tokens_out=6 * calls,
                seconds=seconds * (0.8 + 0.4 * chance.random()),
                trace={} if setting == "direct" else trace(chance, number, reply),
            )
        )
    return results


def made_up_result(id_: str, setting: str, right: bool, **more: Any) -> EvalResult:
    """One of a question that Ruiz is the answer to."""
    reply = "Ruiz" if right else "Lind"
    return EvalResult("midterm", setting, id_, "Who won?", ("Ruiz",), reply, {"em": float(right)}, **more)


def trace(chance: random.Random, number: int, reply: str) -> dict[str, object]:
    wrote = [CARDS[0], chance.choice(CARDS[1:])]
    return {
        "gate": {"name": "self-ask", "score": -0.31, "fired": True},
        "cards": wrote,
        "passages": [
            {
                "card": card,
                "text": f"{reply} won district {number}. The count ended in November.",
                "pruned": f"{reply} won district {number}.",
                "relevance": 0.71,
                "faithfulness": None,
                "factuality": 0.9 if is_kept else None,
                "evidence": {
                    "text": "The winner was declared.",
                    "file": "races.txt",
                    "line": 4,
                    "score": 7.1,
                },
                "kept": is_kept,
            }
            for card, is_kept in zip(wrote, (True, False), strict=True)
        ],
        "citations": [{"sentence": f"{reply}.", "passage": 0, "support": 0.93}],
        "notes": ["rivers wrote nothing to the point"],
    }
