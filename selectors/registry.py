"""Selectors by name, `name` or `name:MODEL[@revision]`, found through entry points, built-ins as a user's own.

What a factory's parameters are called says what it is given: `model` the text after the colon (it must be given
where the parameter has no default), `loading` the device and what is trusted. A factory with neither, such as a
class of one's own, is called with nothing.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kcard import plugins
from kcard.errors import UsageError
from kcard.protocols import Checker, Pruner, Relevance
from kcard.selectors.models.catalogue import Kind

__all__ = ["GROUPS", "Loading", "checker", "pruner", "relevance"]

GROUPS: dict[Kind, str] = {
    "relevance": "kcard.relevance",
    "pruner": "kcard.pruners",
    "checker": "kcard.checkers",
}


@dataclass(frozen=True)
class Loading:
    """Where the models of selectors run, and whether code from their repositories may run with them.

    dtype    of the weights: float32, bfloat16 or float16
    report   called with a sentence before a model is fetched, which can take long
    """

    device: str = "cpu"
    trust_remote_code: bool = False
    dtype: str = "float32"
    report: Callable[[str], None] | None = field(default=None, compare=False)


def relevance(spec: str, loading: Loading = Loading()) -> Relevance:
    """The relevance selector that `spec` names. Raises UsageError, ModelUnavailable, MissingExtra."""
    found: Relevance = _make("relevance", spec, loading)
    return found


def pruner(spec: str, loading: Loading = Loading()) -> Pruner:
    """The pruner that `spec` names. Raises UsageError, ModelUnavailable, MissingExtra."""
    found: Pruner = _make("pruner", spec, loading)
    return found


def checker(spec: str, loading: Loading = Loading()) -> Checker:
    """The checker that `spec` names. Raises UsageError, ModelUnavailable, MissingExtra."""
    found: Checker = _make("checker", spec, loading)
    return found


def _make(kind: Kind, spec: str, loading: Loading) -> Any:
    name, colon, model = spec.partition(":")
    factory = plugins.load(GROUPS[kind], name)
    parameters = inspect.signature(factory).parameters
    given: dict[str, Any] = {"loading": loading} if "loading" in parameters else {}
    if colon and not model:
        raise UsageError(f"{kind} {spec!r} has no model after the colon: write {name}:MODEL")
    if model and "model" not in parameters:
        raise UsageError(f"{kind} {spec!r}: {name} takes no model")
    if model:
        given["model"] = model
    elif "model" in parameters and parameters["model"].default is inspect.Parameter.empty:
        raise UsageError(f"{kind} {name!r} needs a model: {name}:MODEL, a folder or a name on the hub")
    return factory(**given)
