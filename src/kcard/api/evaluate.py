"""Evaluating: the same questions under each setting, beside what each costs; and the same again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kcard.api.eval_asking import SILENT, Told, ask_missing
from kcard.api.eval_presets import EvalPreset
from kcard.api.eval_settings import DEFAULT
from kcard.api.eval_variants import EvalAnalysis
from kcard.cluster import RayOptions
from kcard.errors import UsageError
from kcard.integrators.baselines.options import BaselineOptions
from kcard.integrators.options import AskOptions
from kcard.option import Option, check_values, declared, documented

if TYPE_CHECKING:
    from kcard.api.eval_plan import Prepared
    from kcard.evaluation.runs.run import Run
    from kcard.evaluation.runs.storage import RunStorage
    from kcard.evaluation.runs.summary import SettingSummary
    from kcard.hub.registry import Hub

__all__ = ["Evaluation", "evaluate", "evaluation", "export", "prepared_again", "rerun", "resume"]


@dataclass(frozen=True)
class Evaluation:
    """A run and what it came to: one row for each task and setting."""

    run: "Run"
    rows: "tuple[SettingSummary, ...]"


@documented
def evaluate(
    tasks: Annotated[
        str | Sequence[str],
        Option("Tasks, such as midterm or mmlu; or TASK=PATH.", argument=True, command_line=list[str]),
    ],
    *,
    path: Annotated[
        str | Path | Sequence[str | Path],
        Option(
            "File or folder of the task; of several tasks, one each in order, or TASK=PATH. Repeatable.",
            command_line=list[str],
        ),
    ] = (),
    settings: Annotated[
        str | Sequence[str] | None,
        Option(
            "Settings to compare, comma-separated: direct, bottom-up, top-down[:auto|:explicit], "
            "hybrid[:auto|:explicit], each also as SETTING@GATE or SETTING+OPTION=VALUE, and the baselines retrieval, "
            "genread, gkp, recitation, replug, cards+retrieval.",
            default=DEFAULT,
            command_line=str | None,
        ),
    ] = None,
    preset: Annotated[EvalPreset | None, Option("Settings and options of a paper.")] = None,
    analysis: Annotated[
        EvalAnalysis | None,
        Option(
            "Vary the settings (or the one in which the paper does it): patch, one card at a time; adding, cards one "
            "by one; selectors, one left out; documents, how many are written and kept."
        ),
    ] = None,
    limit: Annotated[
        int | None, Option("Questions of each task, drawn with the seed.", default="all", least=1)
    ] = None,
    shots: Annotated[
        int | None,
        Option("Demonstrations of each question.", default="all that the task gives", least=0),
    ] = None,
    price_in: Annotated[
        float | None, Option("Price of a million tokens that the LLM reads, in any currency.", least=0)
    ] = None,
    price_out: Annotated[float | None, Option("The same of tokens that it writes.", least=0)] = None,
    hub: "Hub | None" = None,
    told: Told = SILENT,
    cluster: RayOptions | None = None,
    **options: Any,
) -> Evaluation:
    """Ask the same questions of tasks under each setting, and store the results as a run of the hub.

    `options`: those of AskOptions, but for mode and select, which are settings here, and of BaselineOptions. A question
    that fails is a result with its error, which counts as wrong; `resume` asks it again. A gate in a setting's name
    decides before --gate; without both, bottom-up always asks cards, and in top-down and hybrid the LLM decides.
    `cluster`: where to ask; None: in this process.

    Raises UsageError for a wrong option or file, HubError where a card is not found, ModelUnavailable.
    """
    given = {
        "tasks": tasks,
        "path": path,
        "settings": settings,
        "preset": preset,
        "analysis": analysis,
        "limit": limit,
        "shots": shots,
        "price_in": price_in,
        "price_out": price_out,
    }
    check_values(evaluate, given)
    known = {*declared(AskOptions), *declared(BaselineOptions)} - {"mode", "select"}
    if strange := sorted(set(options) - known):
        raise UsageError(f"{strange[0]} is not an option of an evaluation: it has {', '.join(sorted(known))}")
    from kcard.api.eval_plan import prepare

    hub = hub or _hub()
    prepared = prepare({**given, **options}, hub)
    return _asked(prepared, _storage(hub).create(prepared.plan), hub, told, cluster)


def resume(
    number: int,
    *,
    hub: "Hub | None" = None,
    told: Told = SILENT,
    llm: Any = None,
    path: Sequence[str] = (),
    cluster: RayOptions | None = None,
) -> Evaluation:
    """Go on with a run: ask what is missing in it and what failed.

    llm      in place of an LLM that was an object, in Python
    path     where the tasks' files are now, if not where they were
    cluster  where to ask; None: in this process

    Raises HubError for an unknown run, and UsageError where a task's file or a card is not what it was.
    """
    hub = hub or _hub()
    run = _storage(hub).get(number)
    prepared = prepared_again(run, hub, llm, path)
    return _asked(prepared, run, hub, told, cluster)


def rerun(
    number: int,
    *,
    hub: "Hub | None" = None,
    told: Told = SILENT,
    llm: Any = None,
    path: Sequence[str] = (),
    cluster: RayOptions | None = None,
) -> Evaluation:
    """Ask everything of a run again, as a new run. Arguments and errors as those of `resume`."""
    hub = hub or _hub()
    prepared = prepared_again(_storage(hub).get(number), hub, llm, path)
    return _asked(prepared, _storage(hub).create(prepared.plan), hub, told, cluster)


def evaluation(number: int, *, hub: "Hub | None" = None) -> Evaluation:
    """What a stored run came to. Raises HubError for an unknown run."""
    from kcard.evaluation.runs.prices import Prices
    from kcard.evaluation.runs.summary import summarise

    storage = _storage(hub or _hub())
    run = storage.get(number)
    prices = Prices(run.plan.options.get("price_in"), run.plan.options.get("price_out"))
    return Evaluation(run, tuple(summarise(run.plan, storage.results(number), prices)))


def export(number: int, folder: Path | str, *, hub: "Hub | None" = None) -> list[Path]:
    """Write a run's eval.yaml and .eval_results/*.yaml into a folder; the files.

    Raises HubError for an unknown run, UsageError where the folder can't be written.
    """
    from kcard.evaluation.runs.eval_results import write_results

    found = evaluation(number, hub=hub)
    try:
        return write_results(found.run, found.rows, Path(folder).expanduser())
    except OSError as error:
        raise UsageError(f"can't write the results to {folder}: {error.strerror or error}") from error


def prepared_again(run: "Run", hub: "Hub", llm: Any, path: Sequence[str]) -> "Prepared":
    """The run's options made ready again, checked to mean the same tasks and cards."""
    from kcard.api.eval_plan import prepare

    changed = {**({"llm": llm} if llm is not None else {}), **({"path": list(path)} if path else {})}
    options: Mapping[str, Any] = {**run.plan.options, **changed}
    prepared = prepare(options, hub)
    for was, task in zip(run.plan.tasks, prepared.plan.tasks, strict=True):
        if was.sha256 != task.sha256:
            raise UsageError(
                f"{task.path} is not what run {run.number} asked (its sha256 was {was.sha256[:12]}, it is "
                f"{task.sha256[:12]}): restore the file, or start a new run"
            )
    for reference, sha256 in run.plan.cards.items():
        if prepared.plan.cards.get(reference) != sha256:
            raise UsageError(f"card {reference} is not the one that run {run.number} asked: start a new run")
    return prepared


def _hub() -> "Hub":
    from kcard.hub.registry import Hub

    return Hub()


def _storage(hub: "Hub") -> "RunStorage":
    from kcard.evaluation.runs.storage import RunStorage

    return RunStorage(hub.runs)


def _asked(
    prepared: "Prepared", run: "Run", hub: "Hub", told: Told, cluster: RayOptions | None
) -> Evaluation:
    ask_missing(prepared, run, _storage(hub), hub, told, cluster)
    return evaluation(run.number, hub=hub)
