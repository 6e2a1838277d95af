"""Gates from the front door: found by name or file, fitted on records, and judged by them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard import plugins
from kcard.config import settings as configured
from kcard.errors import UsageError
from kcard.gates.decision import THRESHOLD
from kcard.protocols import LLM, Gate
from kcard.request import Example

if TYPE_CHECKING:
    from kcard.evaluation.gates.outcome import Outcome
    from kcard.evaluation.gates.trial import Trial
    from kcard.gates.kinds import Fitted, Resources
    from kcard.gates.record import Record

__all__ = [
    "Evaluation",
    "NamedGate",
    "evaluate",
    "fit",
    "gates_folder",
    "kept_name",
    "named_gate",
    "resources",
]

UNFITTED = "kcard.gates"


@dataclass(frozen=True)
class NamedGate:
    """A gate that is ready to be asked; `threshold` is what its scores are compared with."""

    name: str
    gate: Gate
    threshold: float = THRESHOLD


@dataclass(frozen=True)
class Evaluation:
    """How a gate did on records. `folds`: how many, None for a gate that was taken as it is.

    settings  the gate's, as fitted on all records; `tuned`: what its folds chose, where they differ
    """

    gate: str
    outcome: "Outcome"
    settings: Mapping[str, Any]
    folds: int | None = None
    tuned: Mapping[str, Mapping[str, int]] | None = None

    def to_json(self) -> dict[str, Any]:
        """One flat object: the figures, then the settings, which also stand together under "settings"."""
        figures = {"gate": self.gate, **self.outcome.to_json(), "folds": self.folds}
        data = {**self.settings, **figures, "settings": dict(self.settings)}
        ordered = {key: data[key] for key in (*figures, *self.settings, "settings")}
        return ordered | ({"tuned": self.tuned} if self.tuned else {})


def gates_folder() -> Path:
    """Where gates are kept by name."""
    return configured().home / "gates"


def named_gate(name: str, llm: LLM, examples: Sequence[Example] = ()) -> NamedGate:
    """The gate for `kcard ask --gate`: one that needs no records, a fitted one that is kept, or a gate's file.

    Raises UsageError for a kind that must be fitted first, and for what is no gate.
    """
    if name in plugins.names(UNFITTED):
        return NamedGate(name, plugins.load(UNFITTED, name)(llm, examples))
    from kcard.gates import storage
    from kcard.gates.kinds import Asked, Resources

    fitted = storage.load(_file(name), Resources(llm=llm))
    return NamedGate(_title(fitted), Asked(fitted), fitted.threshold)


def fit(
    records: "Path | str | Sequence[Record]",
    kind: str,
    *,
    output: Path | str | None = None,
    settings: Mapping[str, Any] | None = None,
    llm: str | LLM | None = None,
) -> "tuple[Fitted, Path]":
    """Fit a gate on records and keep it: the Python twin of `kcard gate fit`.

    records   a file of them, or they themselves
    kind      a registered kind: skr-knn, thrust, ...
    output    the gate's file (default: under the kcard home, see kept_name)
    settings  the kind's own, such as {"k": 5}
    llm       the LLM that would answer, for kinds that ask it

    Raises UsageError for records or settings that it can't be fitted with.
    """
    from kcard.gates import kinds, storage
    from kcard.gates.record import digest

    found = _records(records)
    fitted = kinds.find(kind).fit(found, settings or {}, resources(llm))
    path = Path(output).expanduser() if output is not None else gates_folder() / kept_name(kind)
    storage.save(fitted, path, digest(found))
    return fitted, path


def kept_name(kind: str) -> str:
    """Under which name a fitted gate is kept: never that of a gate which needs no records (uncertainty, self-ask)."""
    return f"fitted-{kind}" if kind in plugins.names(UNFITTED) else kind


def evaluate(
    records: "Path | str | Sequence[Record]",
    gate: str,
    *,
    folds: int | None = 5,
    settings: Mapping[str, Any] | None = None,
    llm: str | LLM | None = None,
    seed: int = 0,
    report: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Judge a gate by records: the Python twin of `kcard gate eval`.

    gate      a kind, which is fitted anew for each fold on the other folds; or a gate's file, which is taken as it is
    folds     how many; None: leave one out
    settings  the kind's own, such as {"k": 5}
    report    called with how many folds are done, and of how many

    Raises UsageError for a gate that is not there, or can't be fitted on these records.
    """
    found = _records(records)
    if gate not in _kinds():
        return _as_it_is(found, gate, settings, llm)
    from kcard.evaluation.gates import folds as gate_folds
    from kcard.evaluation.gates import trial as gate_trial
    from kcard.evaluation.gates.outcome import Outcome
    from kcard.gates import kinds

    kind, given = kinds.find(gate), settings or {}
    cut = gate_folds.folds(found, folds, seed)
    using = gate_trial.embedding_once(resources(llm), given)
    whole = kind.fit(found, given, using)
    told = None if report is None else lambda done: report(done, len(cut))
    trial = gate_trial.tried(found, kind, given, using, cut, told)
    outcome = Outcome.of(found, trial.seeks)
    return Evaluation(gate, outcome, whole.settings, len(cut), trial.tuned)


def resources(llm: str | LLM | None) -> "Resources":
    """What gates may use: the LLM, asked for the same only once, where one is given."""
    from kcard.front.assembly import Endpoint, make_llm
    from kcard.gates.kinds import Resources
    from kcard.integrators.metered import Metered

    if llm is None:
        return Resources()
    return Resources(llm=Metered(make_llm(llm, 0.1, Endpoint()) if isinstance(llm, str) else llm))


def _as_it_is(
    records: "Sequence[Record]", gate: str, settings: Mapping[str, Any] | None, llm: str | LLM | None
) -> Evaluation:
    if settings:
        raise UsageError(f"{gate} is not fitted anew, so it takes no settings: leave --set out")
    from kcard.evaluation.gates.outcome import Outcome

    if gate in plugins.names(UNFITTED):
        return Evaluation(gate, Outcome.of(records, _unfitted(records, gate, llm)), {})
    from kcard.evaluation.gates.trial import scored
    from kcard.gates import storage

    trial: Trial = scored(records, storage.load(_file(gate), resources(llm)))
    (fitted,) = trial.fits
    return Evaluation(_title(fitted), Outcome.of(records, trial.seeks), fitted.settings)


def _unfitted(records: "Sequence[Record]", gate: str, llm: str | LLM | None) -> Any:
    """Which records seek by a gate that needs none to be fitted on."""
    import numpy as np

    asked = resources(llm).llm
    if asked is None and gate not in {"always", "never"}:
        raise UsageError(f"gate {gate} asks the LLM: name it with --llm")
    made: Gate = plugins.load(UNFITTED, gate)(asked, ())
    return np.asarray(made.knows([record.question for record in records])) < THRESHOLD


def _file(name: str) -> Path:
    """The file that a name or a path means."""
    kept = gates_folder() / name
    if Path(name).expanduser().is_file():
        return Path(name).expanduser()
    if "/" not in name and kept.is_file():
        return kept
    if name in _kinds():
        raise UsageError(
            f"gate {name!r} must be fitted first: kcard gate fit --records RECORDS --kind {name}, which keeps it "
            f"as {kept_name(name)}"
        )
    known = ", ".join(sorted({*plugins.names(UNFITTED), *_kept()}))
    raise UsageError(
        f"no gate {name!r}: give a gate's file, one of {known}, or fit one (kcard gate fit --kind {'|'.join(_kinds())})"
    )


def _kinds() -> list[str]:
    from kcard.gates import kinds

    return kinds.names()


def _kept() -> list[str]:
    folder = gates_folder()
    return (
        [path.name for path in folder.iterdir() if not path.name.startswith(".")] if folder.is_dir() else []
    )


def _title(fitted: "Fitted") -> str:
    """What a fitted gate is called in answers: its kind."""
    return str(fitted.settings["gate"]) if fitted.kind == "calibrated" else fitted.kind


def _records(records: "Path | str | Sequence[Record]") -> "Sequence[Record]":
    from kcard.gates.record import read_records

    return read_records(records) if isinstance(records, Path | str) else records
