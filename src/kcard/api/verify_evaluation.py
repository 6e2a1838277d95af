"""Publishing what an evaluation found, and repeating what somebody published."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.api.eval_asking import SILENT, Told, ask_missing
from kcard.api.eval_plan import Prepared, prepare
from kcard.api.evaluate import Evaluation, evaluation
from kcard.config import OFFLINE_LLMS
from kcard.errors import UsageError

if TYPE_CHECKING:
    from kcard.evaluation.runs.manifest import RunManifest, StatedResult
    from kcard.hub.registry import Hub

__all__ = ["ComparedResult", "Verification", "export_evaluation", "verify_evaluation"]

NEVER = {"llm_url", "engine", "trust_remote_code"}  # what a manifest can't choose


@dataclass(frozen=True)
class ComparedResult:
    """What a manifest states and what a second run found.

    agrees  whether as many questions were asked and the values differ by the tolerance at most
    same    whether every prediction is the same
    """

    stated: "StatedResult"
    found: "StatedResult"
    agrees: bool
    same: bool


@dataclass(frozen=True)
class Verification:
    """A second run, and each of its results against what the manifest states."""

    evaluation: Evaluation
    tolerance: float
    results: tuple[ComparedResult, ...]

    @property
    def agrees(self) -> bool:
        """Whether all results do."""
        return all(result.agrees for result in self.results)


def export_evaluation(
    number: int, folder: Path | str, *, tolerance: float | None = None, hub: "Hub | None" = None
) -> list[Path]:
    """Write a run's manifest.json, eval.yaml and .eval_results/*.yaml into a folder; the files.

    tolerance  by how much the value of a second run may differ, in [0, 1]; by default 0.02

    Raises HubError for an unknown run, UsageError where the folder can't be written or the tolerance is out of range.
    """
    from kcard.evaluation.runs.eval_results import write_results

    manifest = _manifest(evaluation(number, hub=hub), hub, tolerance)
    try:
        return write_results(manifest, Path(folder).expanduser())
    except OSError as error:
        raise UsageError(f"can't write the results to {folder}: {error.strerror or error}") from error


def verify_evaluation(
    manifest: Path | str,
    *,
    path: Sequence[str | Path] = (),
    tolerance: float | None = None,
    llm: Any = None,
    llm_url: str | None = None,
    hub: "Hub | None" = None,
    told: Told = SILENT,
) -> Verification:
    """Repeat a published evaluation as a new run, and compare.

    manifest   its manifest.json, or the folder that holds it
    path       where the tasks' files are here, as for evaluate; by default where they were
    tolerance  in place of the manifest's
    llm, llm_url  in place of the manifest's LLM; needed for one that is not on this machine

    Cards are found by their content, whatever their version's number is here. Raises UsageError for data that is not
    what was evaluated, UnknownCard for a card that is not in this hub.
    """
    from kcard.evaluation.runs.manifest import read_manifest
    from kcard.evaluation.runs.storage import RunStorage
    from kcard.hub.registry import Hub

    hub = hub or Hub()
    stated = read_manifest(Path(manifest).expanduser())
    allowed = _checked(stated.tolerance if tolerance is None else tolerance)
    own = {key: value for key, value in {"llm": llm, "llm_url": llm_url}.items() if value is not None}
    prepared = _prepared(stated, path, own, hub)
    storage = RunStorage(hub.runs)
    run = storage.create(prepared.plan)
    ask_missing(prepared, run, storage, hub, told)
    found = _manifest(evaluation(run.number, hub=hub), hub, allowed)
    by_key = {(result.task, result.setting): result for result in found.results}
    compared = tuple(_compared(was, by_key[was.task, was.setting], allowed) for was in stated.results)
    return Verification(evaluation(run.number, hub=hub), allowed, compared)


def _prepared(
    stated: "RunManifest", path: Sequence[str | Path], own: Mapping[str, Any], hub: "Hub"
) -> Prepared:
    plan = stated.plan
    options = {key: value for key, value in plan.options.items() if key not in NEVER}
    _check_llm(plan.llm, own)
    if plan.cards:
        options["cards"] = [f"{name.partition('@')[0]}@{sha256}" for name, sha256 in plan.cards.items()]
    prepared = prepare({**options, **own, **({"path": list(path)} if path else {})}, hub)
    for was, task in zip(plan.tasks, prepared.plan.tasks, strict=True):
        if (was.sha256, was.ids) != (task.sha256, task.ids):
            raise UsageError(
                f"{task.path} is not what was evaluated: its sha256 is {task.sha256[:12]}, the manifest states "
                f"{was.sha256[:12]}"
            )
    return prepared


def _check_llm(llm: str, own: Mapping[str, Any]) -> None:
    """A manifest may come from anywhere, so it does not choose where questions go."""
    if own.get("llm") is None and llm.partition(":")[0] not in OFFLINE_LLMS:
        raise UsageError(
            f"the manifest's LLM is {llm}, which would send questions elsewhere: choose it with --llm {llm} and, for a "
            "server of your own, --llm-url"
        )


def _compared(was: "StatedResult", now: "StatedResult", tolerance: float) -> ComparedResult:
    agrees = was.n == now.n and abs(was.value - now.value) <= tolerance
    return ComparedResult(was, now, agrees, was.predictions == now.predictions)


def _manifest(found: Evaluation, hub: "Hub | None", tolerance: float | None) -> "RunManifest":
    from kcard.evaluation.runs.manifest import TOLERANCE, RunManifest
    from kcard.evaluation.runs.storage import RunStorage
    from kcard.hub.registry import Hub

    results = RunStorage((hub or Hub()).runs).results(found.run.number)
    allowed = _checked(TOLERANCE if tolerance is None else tolerance)
    return RunManifest.of(found.run, found.rows, results, allowed)


def _checked(tolerance: float) -> float:
    if not 0 <= tolerance <= 1:
        raise UsageError(f"tolerance is {tolerance}: it must be between 0 and 1")
    return tolerance
