"""Evidence by name: a file or folder, or what is registered under `kcard.evidence`, built-ins as a user's own.

    facts/            a local corpus; "corpus:facts/" is the same
    wikipedia         the encyclopedia in English, "wikipedia:de" in German
    NAME[:ARGUMENT]   the entry point NAME of the group, called with the argument ("" where there is none)

A name wins over a file of that name, which is written "./wikipedia". A bare path is the entry point `corpus`.
"""

from pathlib import Path

from kcard import plugins
from kcard.errors import CorpusError, UsageError
from kcard.protocols import NamedEvidence

__all__ = ["GROUP", "names", "open_evidence"]

GROUP = "kcard.evidence"
LOCAL = "corpus"


def open_evidence(spec: str) -> NamedEvidence:
    """The evidence that `spec` names, ready to be searched.

    Raises UsageError for an empty spec, CorpusError where there is neither such a name nor such a path, or the
    corpus is empty or can't be read; and what an evidence of a user's own raises.
    """
    name, _, argument = spec.partition(":")
    if not spec.strip():
        raise UsageError("evidence is empty: give a file, a folder or one of " + ", ".join(names()))
    if name not in names():
        path = Path(spec).expanduser()
        if path.name.partition(":")[0] in names() and not path.exists():
            raise CorpusError(
                f"evidence {spec} does not exist; a project file can't choose {path.name}: give it as --evidence, "
                "or set it in your own config"
            )
        if not path.exists():
            raise CorpusError(
                f"evidence {spec} does not exist: name a file, a folder or one of {', '.join(names())}"
            )
        name, argument = LOCAL, spec
    found: NamedEvidence = plugins.load(GROUP, name)(argument)
    return found


def names() -> list[str]:
    """The registered names, sorted."""
    return plugins.names(GROUP)
