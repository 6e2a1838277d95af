"""kcard: a hub of knowledge cards, small domain-specific language models that supply knowledge to any LLM.

import kcard

card = kcard.train("notes/")
print(card.ask("Who won the senate race in Oregon?").answer)
card.publish()
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kcard.version import __version__ as __version__

if TYPE_CHECKING:  # as type checkers and editors know them; a test compares these with _HOMES
    from kcard.api.add import add as add
    from kcard.api.check import check as check
    from kcard.api.check import check_file as check_file
    from kcard.api.collect import collect as collect
    from kcard.api.corpus_card import index_corpus as index_corpus
    from kcard.api.doctor import doctor as doctor
    from kcard.api.evaluate import evaluate as evaluate
    from kcard.api.evaluate import report as report
    from kcard.api.exam import audit as audit
    from kcard.api.exam import audit_many as audit_many
    from kcard.api.exam import browse as browse
    from kcard.api.exam import exam as exam
    from kcard.api.gates import calibrate as calibrate
    from kcard.api.hub import login as login
    from kcard.api.hub import logout as logout
    from kcard.api.hub import publish as publish
    from kcard.api.hub import pull as pull
    from kcard.api.hub import whoami as whoami
    from kcard.api.sync import sync as sync
    from kcard.api.sync import watch as watch
    from kcard.api.train import train as train
    from kcard.api.train import train_many as train_many
    from kcard.cards.card import Card as Card
    from kcard.cluster import RayOptions as RayOptions
    from kcard.hub.registry import Hub as Hub
    from kcard.integrators.batch_files import ask_on_cluster as ask_on_cluster
    from kcard.integrators.options import AskOptions as AskOptions
    from kcard.integrators.pipeline import Pipeline as Pipeline
    from kcard.integrators.pipeline import ask as ask
    from kcard.manifest import Manifest as Manifest
    from kcard.training.options import TrainOptions as TrainOptions
    from kcard.types import Answer as Answer
    from kcard.types import Passage as Passage

_HOMES = {
    "Answer": "kcard.types",
    "AskOptions": "kcard.integrators.options",
    "Card": "kcard.cards.card",
    "Hub": "kcard.hub.registry",
    "Manifest": "kcard.manifest",
    "Passage": "kcard.types",
    "Pipeline": "kcard.integrators.pipeline",
    "RayOptions": "kcard.cluster",
    "TrainOptions": "kcard.training.options",
    "add": "kcard.api.add",
    "ask": "kcard.integrators.pipeline",
    "ask_on_cluster": "kcard.integrators.batch_files",
    "audit": "kcard.api.exam",
    "audit_many": "kcard.api.exam",
    "browse": "kcard.api.exam",
    "calibrate": "kcard.api.gates",
    "check": "kcard.api.check",
    "check_file": "kcard.api.check",
    "collect": "kcard.api.collect",
    "doctor": "kcard.api.doctor",
    "evaluate": "kcard.api.evaluate",
    "exam": "kcard.api.exam",
    "index_corpus": "kcard.api.corpus_card",
    "login": "kcard.api.hub",
    "logout": "kcard.api.hub",
    "publish": "kcard.api.hub",
    "pull": "kcard.api.hub",
    "report": "kcard.api.evaluate",
    "sync": "kcard.api.sync",
    "train": "kcard.api.train",
    "train_many": "kcard.api.train",
    "watch": "kcard.api.sync",
    "whoami": "kcard.api.hub",
}

__all__ = sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import kcard` loads nothing heavy."""
    if name not in _HOMES:
        raise AttributeError(f"module 'kcard' has no attribute {name!r}")
    from kcard.config import let_threads_sleep

    let_threads_sleep()
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
