"""What a manifest says of how its card was made, and the command line that made it."""

import shlex
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kcard
from kcard.manifest import Training
from kcard.training.corpus import Corpus
from kcard.training.loop import TrainingOutcome
from kcard.training.options import TrainOptions
from kcard.training.preparation import Preparation

__all__ = ["command_line", "remedy", "trained", "unmodelled"]


def trained(
    corpus: Corpus, given: TrainOptions, prepared: Preparation, outcome: TrainingOutcome, licence: str
) -> Training:
    """The record of a run that trained a model."""
    measured = {"final_loss": round(outcome.loss, 4), "passes": outcome.epochs}
    return Training(
        objective=given.objective or "recite",
        method=given.method or "",
        hyperparameters={**prepared.hyperparameters, **measured, **prepared.check()},
        tokens=outcome.tokens,
        seconds=round(outcome.seconds, 1),
        seed=given.seed,
        **_common(corpus, licence, prepared.libraries),
    )


def unmodelled(corpus: Corpus, licence: str) -> Training:
    """The record of a card without a model. It holds no time, so that equal corpora make equal cards."""
    return Training(objective="index", method="bm25", **_common(corpus, licence, ("bm25s",)))


def remedy() -> str:
    """How to go on after Ctrl-C: the same command line with --resume."""
    program, *arguments = command_line()
    if program == "kcard":
        again = [word for word in arguments if word != "--resume"]
        return f"continue with: {shlex.join([program, *again, '--resume'])}"
    return "repeat the call with resume=True (--resume)"


def _common(corpus: Corpus, licence: str, libraries: tuple[str, ...]) -> Mapping[str, Any]:
    return {
        "command": shlex.join(command_line()),
        "corpus_sha256": corpus.sha256,
        "corpus_licence": licence,
        "passages": len(corpus.passages),
        "libraries": {"kcard": kcard.__version__} | {name: version(name) for name in libraries},
    }


def command_line() -> list[str]:
    """The program and its arguments, as they would be typed again."""
    program = Path(sys.argv[0])
    run_as_module = (program.parent.name, program.name) == ("kcard", "__main__.py")
    return ["kcard" if run_as_module else program.name, *sys.argv[1:]]
