"""What an evaluation keeps of one question under one setting."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Call", "Result"]


@dataclass(frozen=True)
class Call:
    """One request to the LLM: the prompt as it was sent, the reply, tokens (None where the backend does not tell) and
    seconds. `error`: why there is no reply; "" where there is one."""

    kind: str
    prompt: str
    reply: str
    tokens_in: int | None = None
    tokens_out: int | None = None
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class Result:
    """One question of a task under one setting, such as "top-down:auto".

    answers     the accepted ones
    prediction  what was answered; "" where it failed
    scores      by metric, in [0, 1]: em, f1, substring, and accuracy for multiple choice
    popularity  of the question's subject (Item.popularity)
    trace       the whole answer, as `kcard ask --json` prints it; {} where it failed
    error       why there is no answer; "" where there is one
    """

    task: str
    setting: str
    id: str
    question: str
    answers: tuple[str, ...]
    prediction: str
    scores: Mapping[str, float]
    choices: Mapping[str, str] = field(default_factory=dict)
    group: str = ""
    popularity: float | None = None
    calls: tuple[Call, ...] = ()
    tokens_in: int | None = None
    tokens_out: int | None = None
    seconds: float = 0.0
    trace: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
