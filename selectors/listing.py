"""Which selectors and presets there are, what they read, and whether it is on this machine. Nothing is loaded."""

from collections.abc import Iterator
from dataclasses import dataclass

from kcard import plugins
from kcard.selectors.models import checkpoint
from kcard.selectors.models.catalogue import PRESETS, Kind, Model, Preset, models
from kcard.selectors.presets import SelectorChoice
from kcard.selectors.registry import GROUPS

__all__ = ["ListedSelector", "Readiness", "missing", "presets", "selectors"]


@dataclass(frozen=True)
class ListedSelector:
    """A registered selector, or one of the models that it reads.

    model     empty where the catalogue does not know it: one of a user's own, or one that is named a model
    needs     what must be given for it: a flag, a model
    here      whether its weights are on this machine; None where that is not known
    """

    kind: Kind
    name: str
    model: str = ""
    revision: str = ""
    licence: str = ""
    size: str = ""
    needs: str = ""
    here: bool | None = None


@dataclass(frozen=True)
class Readiness:
    """A preset, and the repositories that are not on this machine."""

    preset: Preset
    missing: tuple[str, ...]


def selectors() -> list[ListedSelector]:
    """Every registered selector, by kind and name; one entry for each model that it reads."""
    return [
        entry
        for kind, group in GROUPS.items()
        for name in plugins.names(group)
        for entry in _entries(kind, name)
    ]


def presets() -> list[Readiness]:
    """Every preset, with what would have to be fetched for it."""
    return [Readiness(preset, missing(SelectorChoice(name))) for name, preset in PRESETS.items()]


def missing(choice: SelectorChoice) -> tuple[str, ...]:
    """The repositories of the catalogue that the chosen selectors read and that are not on this machine."""
    read = [model for kind in GROUPS for model in models(kind, choice.spec(kind))]
    return tuple(dict.fromkeys(model.repository.name for model in read if not _here(model)))


def _entries(kind: Kind, name: str) -> Iterator[ListedSelector]:
    known = models(kind, name)
    if not known:
        yield ListedSelector(kind, name, needs="MODEL" if _wants_model(kind, name) else "")
    for model in known:
        yield ListedSelector(
            kind,
            name,
            model.repository.name,
            model.repository.revision,
            model.licence,
            model.size,
            "--trust-remote-code" if model.remote_code else "",
            _here(model),
        )


def _here(model: Model) -> bool:
    """Whether its weights, and the tokenizer where that lies elsewhere, are in the cache."""
    if model.embedded:
        return True
    weights = checkpoint.here(model.repository.name, model.repository.revision)
    return weights and (model.companion is None or checkpoint.cached(model.companion, checkpoint.TOKENIZER))


def _wants_model(kind: Kind, name: str) -> bool:
    import inspect

    found = inspect.signature(plugins.load(GROUPS[kind], name)).parameters.get("model")
    return found is not None and found.default is inspect.Parameter.empty
