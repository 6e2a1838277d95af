"""Asks what a run has no answer to, with the LLM and the cards that its options name."""

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from kcard.cluster import RayOptions, device_there, json_ready, mapped

if TYPE_CHECKING:
    from kcard.api.eval_plan import Prepared
    from kcard.evaluation.runs.result import Result
    from kcard.evaluation.runs.run import Run
    from kcard.evaluation.runs.runner import Key, Runner, Store
    from kcard.evaluation.runs.storage import RunStorage
    from kcard.hub.registry import Hub
    from kcard.protocols import LLM, Answerer

__all__ = ["SILENT", "Told", "ask_missing"]

GIVE_UP = (
    3  # so many batches of a cluster in a row without an answer are the endpoint's failure, not a worker's
)


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
    cluster: RayOptions | None = None,
) -> None:
    """Ask every question of the run that has no result, or one with an error; store each result as it comes.

    cluster  where to ask; None: in this process
    """
    for text in prepared.notes:
        told.note(text)
    runner = None if cluster is not None else _runner(prepared, run, storage, hub, told.note)
    told.started(run)
    done = {(r.task, r.setting, r.id) for r in storage.results(run.number) if not r.error}
    missing = [key for key in run.plan.keys() if key not in done]  # noqa: SIM118

    def report(now: int) -> None:
        told.progress(len(done) + now, run.plan.planned)

    if runner is not None:
        runner.ask(missing, report)
    elif cluster is not None:
        _ask_on_cluster(prepared, run, storage, missing, cluster, report)


def _ask_on_cluster(
    prepared: "Prepared",
    run: "Run",
    storage: "RunStorage",
    missing: "Sequence[Key]",
    cluster: RayOptions,
    report: Callable[[int], None],
) -> None:
    """Ask these questions in the batches in which one process would, and store the results.

    Questions whose worker fails are results with its error; after GIVE_UP batches without an answer the rest is not
    asked. Raises UsageError for an LLM that is an object, and ClusterError.
    """
    from kcard.batches import batched, questions_together
    from kcard.evaluation.runs.result import Result
    from kcard.evaluation.runs.runner import NOT_ASKED
    from kcard.evaluation.runs.scoring import failed
    from kcard.json_values import build, parse

    def failure(key: "Key", error: str) -> Result:
        item = next(item for item in prepared.tasks[key[0]].items if item.id == key[2])
        return failed(key[0], key[1], item, error, ())

    options = prepared.options
    json_ready({"llm": options.llm})
    parts: dict[tuple[str, str], list[Key]] = {}
    for key in missing:
        parts.setdefault(key[:2], []).append(key)
    size = questions_together(options.concurrency)
    chunks = [chunk for part in parts.values() for chunk in batched(part, size)]
    where = {
        "paths": [task.path for task in prepared.plan.tasks],
        "device": device_there(cluster, options.device),
    }
    pieces = [{"number": run.number, "keys": chunk, **where} for chunk in chunks]
    left, streak = dict.fromkeys(missing), 0
    with closing(mapped(_asked, pieces, cluster, options.device)) as outcomes:
        for nth, outcome in outcomes:
            results = [build(Result, parse(text)) for text in outcome.get("result", ())]
            results = results or [failure(key, outcome["error"]) for key in chunks[nth]]
            storage.append(run, results)
            for key in chunks[nth]:
                del left[key]
            report(len(missing) - len(left))
            streak = streak + 1 if all(result.error for result in results) else 0
            if streak == GIVE_UP:
                break
    storage.append(run, [failure(key, NOT_ASKED) for key in left])


def _asked(number: int, keys: Sequence[Sequence[str]], paths: Sequence[str], device: str) -> list[str]:
    """The results of questions of one task and setting, as JSON, in order."""
    runner, store = _runner_again(number, tuple(paths), device)
    store.results.clear()
    runner.ask([(task, setting, question) for task, setting, question in keys])
    return [json.dumps(asdict(result)) for result in store.results]


class _Results:
    """The results of one batch."""

    def __init__(self) -> None:
        self.results: list[Result] = []

    def append(self, _: "Run", results: "Sequence[Result]") -> None:
        self.results.extend(results)


@lru_cache(maxsize=1)
def _runner_again(number: int, paths: tuple[str, ...], device: str) -> "tuple[Runner, _Results]":
    """What asks the questions of a run, as the hub has it; a worker keeps it, and so the models of a setting."""
    from kcard.api.evaluate import prepared_again
    from kcard.evaluation.runs.storage import RunStorage
    from kcard.hub.registry import Hub

    hub, store = Hub(), _Results()
    run = RunStorage(hub.runs).get(number)
    prepared = prepared_again(run, hub, None, paths)
    prepared = replace(prepared, options=replace(prepared.options, device=device))
    return _runner(prepared, run, store, hub, SILENT.note), store


def _runner(
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
