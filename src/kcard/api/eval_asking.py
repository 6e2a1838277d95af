"""Asks what a run has no answer to, with the LLM and the cards that its options name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kcard.api.eval_plan import Prepared
    from kcard.bulk.options import RayOptions
    from kcard.evaluation.runs.run import Run
    from kcard.evaluation.runs.runner import Runner, Store
    from kcard.evaluation.runs.storage import RunStorage
    from kcard.hub.registry import Hub
    from kcard.protocols import LLM, Answerer

__all__ = ["SILENT", "Told", "ask_missing", "make_runner"]


@dataclass(frozen=True)
class Told:
    """What an evaluation tells while it runs.

    note      called with sentences for the user
    started   called with the run as soon as it is stored
    progress  called with (results done, of how many)
    """

    note: Callable[[str], None] = lambda _: None
    started: Callable[["Run"], None] = lambda _: None
    progress: Callable[[int, int], None] = lambda _, __: None


SILENT = Told()


def ask_missing(
    prepared: "Prepared",
    run: "Run",
    storage: "RunStorage",
    hub: "Hub",
    told: Told,
    cluster: "RayOptions | None" = None,
) -> None:
    """Ask every question of the run that has no result, or one with an error; store each result as it comes.

    cluster  where to ask; None: in this process
    """
    for text in prepared.notes:
        told.note(text)
    runner = None if cluster is not None else make_runner(prepared, run, storage, hub, told.note)
    told.started(run)
    done = {(r.task, r.setting, r.id) for r in storage.results(run.number) if not r.error}
    missing = [key for key in run.plan.keys() if key not in done]  # noqa: SIM118

    def report(now: int) -> None:
        told.progress(len(done) + now, run.plan.planned)

    if runner is not None:
        runner.ask(missing, report)
    elif cluster is not None:
        from kcard.api.eval_on_cluster import ask_on_cluster

        ask_on_cluster(prepared, run, storage, missing, cluster, report)


def make_runner(
    prepared: "Prepared", run: "Run", store: "Store", hub: "Hub", note: Callable[[str], None]
) -> "Runner":
    """What asks the questions of the run and gives the results to `store`."""
    from kcard.batches import questions_together
    from kcard.evaluation.runs.questions import put
    from kcard.evaluation.runs.recorder import Recorder
    from kcard.evaluation.runs.runner import Runner

    llm = _llm(prepared, note)
    if announcement := getattr(llm, "announcement", None):
        note(announcement)
    recorder = Recorder(llm)
    return Runner(
        run,
        prepared.tasks,
        lambda task, item: put(task, item, prepared.shots),
        _Answerers(prepared, recorder, hub, note),
        recorder,
        store,
        questions_together(prepared.options.concurrency or recorder.concurrency),
    )


class _Answerers:
    """The ways of answering, each made when its turn comes; the models of one setting are loaded at a time."""

    def __init__(self, prepared: "Prepared", llm: "LLM", hub: "Hub", note: Callable[[str], None]) -> None:
        self._prepared, self._llm, self._hub, self._note = prepared, llm, hub, note
        self._opened: tuple[str, Answerer] | None = None

    def __call__(self, name: str) -> "Answerer":
        if self._opened is None or self._opened[0] != name:
            self._opened = None
            setting = next(s for s in self._prepared.settings if s.name == name)
            prepared = self._prepared
            made = setting.answerer(prepared.options, prepared.baseline, self._llm, self._hub, self._note)
            self._opened = name, made
        return self._opened[1]


def _llm(prepared: "Prepared", note: Callable[[str], None]) -> "LLM":
    from kcard.integrators.assembly import endpoint_of, make_llm

    options = prepared.options
    return make_llm(options.llm, options.temperature, endpoint_of(options, note))
