"""Ask the questions of a run, here or on a Ray cluster, and store each result as it comes."""

import json
from collections.abc import Callable, Sequence, Set
from contextlib import closing
from dataclasses import asdict, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kcard.cluster import RayOptions, json_ready, mapped, worker_device
from kcard.errors import UsageError
from kcard.events import Event, OnEvent, ignore, note

if TYPE_CHECKING:
    from kcard.api.eval_plan import EvaluationPlan
    from kcard.evaluation.runs.results import EvalResult
    from kcard.evaluation.runs.run import Run, RunStorage
    from kcard.evaluation.runs.runner import Key, Runner
    from kcard.hub.registry import Hub
    from kcard.interfaces import LLM, Answerer


def ask_questions(
    prepared: "EvaluationPlan",
    hub: "Hub",
    on_event: OnEvent,
    cluster: RayOptions | None,
    run: "Run | None" = None,
) -> "Run":
    """Ask every question of a run that has no result, or one with an error, and return the run.

    cluster  where to ask; None: in this process
    run      None: a new one, which begins once its selectors were loaded
    """
    storage = run_storage(hub)
    keys = dict.fromkeys(prepared.plan.keys())
    if run is not None:
        for result in storage.results(run.number):
            if not result.error:
                keys.pop((result.task, result.setting, result.id), None)
    missing = list(keys)
    if cluster is None:
        _check_selectors(prepared, {setting for _, setting, _ in missing}, on_event)
    if run is None:
        run = storage.create(prepared.plan)
    number, done = run.number, run.plan.planned - len(missing)
    for text in prepared.notes:
        on_event(note(text))

    def store(results: "Sequence[EvalResult]") -> None:
        storage.append(run, results)

    def report(now: int) -> None:
        on_event(Event("asking", done=done + now, total=run.plan.planned))

    if cluster is None:
        runner = _make_runner(prepared, lambda result: store([result]), hub, on_event)
        on_event(Event("run", f"run {number} is stored", done=number))
        runner.ask(missing, lambda event: report(event.done))
    else:
        on_event(Event("run", f"run {number} is stored", done=number))
        _ask_on_cluster(prepared, number, missing, store, cluster, report)
    return run


def run_storage(hub: "Hub") -> "RunStorage":
    from kcard.evaluation.runs.run import RunStorage

    return RunStorage(hub.runs)


def _ask_on_cluster(
    prepared: "EvaluationPlan",
    number: int,
    missing: "Sequence[Key]",
    store: "Callable[[Sequence[EvalResult]], None]",
    cluster: RayOptions,
    report: Callable[[int], None],
) -> None:
    """Ask these questions in the same batches as in one process, and store the results.

    If a worker fails, its questions get results with the error; after MAX_FAILED_BATCHES batches without an answer the
    rest is skipped. Raises UsageError for an LLM that is an object, and ClusterError.
    """
    from kcard.batching import MAX_FAILED_BATCHES, FailureStreak, batched, questions_together
    from kcard.evaluation.runs.results import EvalResult, make_result
    from kcard.evaluation.runs.runner import SKIPPED_ERROR
    from kcard.io import build, parse

    def failure(key: "Key", error: str) -> EvalResult:
        item = next(item for item in prepared.tasks[key[0]].items if item.id == key[2])
        return make_result(key[0], key[1], item, error, ())

    # Cut the questions of each task and setting into batches.
    options = prepared.options
    json_ready({"llm": options.llm})
    parts: dict[tuple[str, str], list[Key]] = {}
    for key in missing:
        parts.setdefault(key[:2], []).append(key)
    size = questions_together(options.concurrency)
    paths = [task.path for task in prepared.plan.tasks]
    device = worker_device(cluster, options.device)
    batches: list[dict[str, Any]] = []
    for part in parts.values():
        for keys in batched(part, size):
            batches.append({"number": number, "keys": keys, "paths": paths, "device": device})
    # Store the results of each batch as it arrives.
    left, streak = dict.fromkeys(missing), FailureStreak(MAX_FAILED_BATCHES)
    with closing(mapped(_answer_batch, batches, cluster, options.device)) as outcomes:
        for nth, outcome in outcomes:
            keys = batches[nth]["keys"]
            results = [build(EvalResult, parse(text)) for text in outcome.get("result", ())]
            if not results:
                results = [failure(key, outcome["error"]) for key in keys]
            store(results)
            for key in keys:
                del left[key]
            report(len(missing) - len(left))
            if streak.record(all(result.error for result in results)):
                break
    store([failure(key, SKIPPED_ERROR) for key in left])


def _answer_batch(number: int, keys: Sequence[Sequence[str]], paths: Sequence[str], device: str) -> list[str]:
    """Answer questions of one task and setting in a worker; return the results as JSON, in order."""
    runner = _worker_runner(number, tuple(paths), device)
    results: list[EvalResult] = []
    runner.store = results.append
    runner.ask([(task, setting, question) for task, setting, question in keys])
    return [json.dumps(asdict(result)) for result in results]


@lru_cache(maxsize=1)
def _worker_runner(number: int, paths: tuple[str, ...], device: str) -> "Runner":
    """Return the runner of a stored run; a worker keeps it, with the models of a setting, for further batches."""
    from kcard.hub.registry import Hub

    hub = Hub()
    prepared = prepare_again(run_storage(hub).get(number), hub, None, paths)
    prepared = replace(prepared, options=replace(prepared.options, device=device))
    return _make_runner(prepared, lambda _: None, hub, ignore)


def _make_runner(
    prepared: "EvaluationPlan", store: "Callable[[EvalResult], None]", hub: "Hub", on_event: OnEvent
) -> "Runner":
    """Return a runner that asks the questions of a run and passes each result to `store`."""
    from kcard.batching import questions_together
    from kcard.evaluation.runs.runner import Runner
    from kcard.integrators.assembly import endpoint_of, make_llm

    options = prepared.options
    llm = make_llm(options.llm, options.temperature, endpoint_of(options, on_event))
    if llm.announcement:
        on_event(note(llm.announcement))
    settings = {setting.name: setting for setting in prepared.settings}

    def make_answerer(name: str) -> "Answerer":
        return settings[name].answerer(options, prepared.baseline, llm, hub, on_event)

    batch = questions_together(options.concurrency or llm.concurrency)
    return Runner(prepared.plan, prepared.tasks, make_answerer, llm, store, prepared.shots, batch)


def _check_selectors(prepared: "EvaluationPlan", names: "Set[str]", on_event: OnEvent) -> None:
    """Load the selectors of the settings of these names, except the first one's, one after the other.

    Models that are missing are thus reported at once, not after hours in which the other settings were asked.
    """
    from kcard.selectors.registry import GROUPS, Loading, SelectorChoice

    options, checked = prepared.options, set()
    loading = Loading(options.device, options.trust_remote_code, on_event=on_event)
    settings = [setting for setting in prepared.settings if setting.name in names]
    for setting in settings[1:]:
        if not setting.has_selectors:
            continue
        own = setting.options(options)
        choice = SelectorChoice(own.selectors, own.relevance, own.pruner_name, own.checker)
        for kind in GROUPS:
            if (kind, choice.spec(kind)) not in checked:
                checked.add((kind, choice.spec(kind)))
                choice.make(kind, loading)


def prepare_again(
    run: "Run", hub: "Hub", llm: "str | LLM | Callable[[str], str] | None", path: Sequence[str]
) -> "EvaluationPlan":
    """Prepare a stored run again, and check that its tasks and cards are unchanged."""
    from kcard.api.eval_plan import prepare

    options: dict[str, Any] = dict(run.plan.options)
    if llm is not None:
        options["llm"] = llm
    if path:
        options["path"] = list(path)
    prepared = prepare(options, hub)
    for was, task in zip(run.plan.tasks, prepared.plan.tasks, strict=True):
        if was.sha256 != task.sha256:
            raise UsageError(
                f"{task.path} has changed since run {run.number} (its sha256 was {was.sha256[:12]}, it is "
                f"{task.sha256[:12]}): restore the file, or start a new run"
            )
    for reference, sha256 in run.plan.cards.items():
        if prepared.plan.cards.get(reference) != sha256:
            raise UsageError(f"card {reference} has changed since run {run.number}: start a new run")
    return prepared
