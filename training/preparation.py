"""What a way of training hands to `train`: a job to run, and how its result becomes files and a manifest."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kcard.manifest import Base, Prompt
from kcard.training.loop import Job

__all__ = ["Preparation"]


@dataclass(frozen=True)
class Preparation:
    """What is to be trained, and what follows.

    save    writes the model files and the tokenizer into a folder, once, and may let go of them
    check   measures, once training has ended, what is recorded beside the hyperparameters, such as a held-out loss
    device  where training runs
    seconds  that this preparation takes besides the steps, where it takes long
    """

    job: Job
    save: Callable[[Path], None]
    kind: str
    base: Base
    prompt: Prompt
    hyperparameters: Mapping[str, Any]
    libraries: tuple[str, ...] = ("torch", "transformers", "tokenizers")
    check: Callable[[], Mapping[str, Any]] = field(default=dict)
    device: str = "cpu"
    seconds: float = 0.0
