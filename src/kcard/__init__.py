"""kcard: a hub of knowledge cards, small domain-specific language models that supply knowledge to any LLM.

import kcard

card = kcard.train("notes/")
kcard.publish(card)
print(kcard.ask("Who won the senate race in Oregon?").answer)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kcard.hub.registry import Hub as Hub
    from kcard.manifest import Manifest as Manifest
    from kcard.types import Answer as Answer

__version__ = "0.1.0"

_HOMES = {
    "Answer": "kcard.types",
    "AskOptions": "kcard.integrators.options",
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
    "collect": "kcard.api.gates",
    "doctor": "kcard.api.doctor",
    "evaluate": "kcard.api.evaluate",
    "exam": "kcard.api.exam",
    "export": "kcard.api.export",
    "login": "kcard.api.hub",
    "logout": "kcard.api.hub",
    "publish": "kcard.api.hub",
    "pull": "kcard.api.hub",
    "report": "kcard.api.evaluate",
    "study": "kcard.api.study",
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
