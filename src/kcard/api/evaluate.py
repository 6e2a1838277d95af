"""Evaluate settings on the same questions, resume a run, report it."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kcard.api.eval_plan import DEFAULT, EvalAnalysis
from kcard.cluster import RayOptions, json_ready, mapped, worker_device
from kcard.errors import UsageError
from kcard.events import Event, OnEvent, ignore, note
from kcard.integrators.options import AskOptions, BaselineOptions, Paper
from kcard.options import Option, check_keywords, check_values, declared, documented

if TYPE_CHECKING:
    from kcard.api.eval_plan import EvalSetting, EvaluationPlan
    from kcard.evaluation.report.report import Report
    from kcard.evaluation.runs.results import EvalResult
    from kcard.evaluation.runs.run import Run, RunStorage
    from kcard.evaluation.runs.runner import Key, Runner
    from kcard.evaluation.runs.summary import SettingSummary
    from kcard.hub.registry import Hub
    from kcard.interfaces import LLM, Answerer

# Answer the questions of a run that have no result yet.


def missing_keys(run: "Run", storage: "RunStorage") -> "list[Key]":
    """Return the questions of the run, under each setting, that have no result, or one with an error."""
    done = {(r.task, r.setting, r.id) for r in storage.results(run.number) if not r.error}
    return [key for key in run.plan.keys() if key not in done]  # noqa: SIM118


def ask_on_cluster(
    prepared: "EvaluationPlan",
    run: "Run",
    storage: "RunStorage",
    missing: "Sequence[Key]",
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
    chunks = [chunk for part in parts.values() for chunk in batched(part, size)]
    where = {
        "paths": [task.path for task in prepared.plan.tasks],
        "device": worker_device(cluster, options.device),
    }
    pieces = [{"number": run.number, "keys": chunk, **where} for chunk in chunks]
    # Store the results of each batch as it arrives.
    left, streak = dict.fromkeys(missing), FailureStreak(MAX_FAILED_BATCHES)
    with closing(mapped(_answer_batch, pieces, cluster, options.device)) as outcomes:
        for nth, outcome in outcomes:
            results = [build(EvalResult, parse(text)) for text in outcome.get("result", ())]
            results = results or [failure(key, outcome["error"]) for key in chunks[nth]]
            storage.append(run, results)
            for key in chunks[nth]:
                del left[key]
            report(len(missing) - len(left))
            if streak.record(all(result.error for result in results)):
                break
    storage.append(run, [failure(key, SKIPPED_ERROR) for key in left])


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
    hub = _hub()
    prepared = prepared_again(_storage(hub).get(number), hub, None, paths)
    prepared = replace(prepared, options=replace(prepared.options, device=device))
    return _runner(prepared, lambda _: None, hub, ignore)


def _runner(
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


def _check_selectors(
    prepared: "EvaluationPlan", settings: "Sequence[EvalSetting]", on_event: OnEvent
) -> None:
    """Load the selectors of these settings, except the first one's, one after the other.

    Models that are missing are thus reported at once, not after hours in which the other settings were asked.
    """
    from kcard.selectors.registry import GROUPS, Loading, SelectorChoice

    options, checked = prepared.options, set()
    loading = Loading(options.device, options.trust_remote_code, on_event=on_event)
    for setting in settings[1:]:
        if not setting.has_selectors:
            continue
        own = setting.options(options)
        choice = SelectorChoice(own.selectors, own.relevance, own.pruner_name, own.checker)
        for kind in GROUPS:
            if (kind, choice.spec(kind)) not in checked:
                checked.add((kind, choice.spec(kind)))
                choice.make(kind, loading)


HEADINGS = (
    "setting",
    "n",
    "",
    "95 % interval",
    "p",
    "p, all settings",
    "calls",
    "tokens",
    "seconds",
    "errors",
)


@dataclass(frozen=True)
class Evaluation:
    """A run and its summary: one row for each task and setting."""

    run: "Run"
    rows: "tuple[SettingSummary, ...]"

    @property
    def tables(self) -> list[tuple[str, list[str], list[list[str]]]]:
        """Return a table for each task, as (caption, headings, rows), with a row of texts for each setting."""
        tables = []
        for task in self.run.plan.tasks:
            rows = [row for row in self.rows if row.task == task.name]
            if not rows:
                continue
            has_cost = any(row.cost is not None for row in rows)
            cells = []
            for row in rows:
                has_tokens = row.tokens_in is not None and row.tokens_out is not None
                cells.append(
                    [
                        row.setting,
                        str(row.n),
                        f"{row.value:.3f}",
                        f"[{row.low:.3f}, {row.high:.3f}]",
                        "-" if row.p is None else f"{row.p:.2g}",
                        "-" if row.p_holm is None else f"{row.p_holm:.2g}",
                        str(row.calls),
                        f"{row.tokens_in} + {row.tokens_out}" if has_tokens else "-",
                        f"{row.seconds:.1f}",
                        str(row.errors),
                    ]
                )
                if has_cost:
                    cells[-1].append("-" if row.cost is None else f"{row.cost:.4f}")
            headings = [heading or task.metric for heading in HEADINGS] + (["cost"] if has_cost else [])
            caption = f"{task.name}, {len(task.ids)} of {task.total} questions, {self.run.plan.llm}"
            if missing := sum(row.missing for row in rows):
                caption += f"; {missing} questions were not asked yet"
            tables.append((caption, headings, cells))
        return tables

    def _repr_html_(self) -> str:
        """Return the tables as notebooks show them."""
        from kcard.display import table_html

        return table_html(f"Run {self.run.number}", self.tables)


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
    analysis: Annotated[
        EvalAnalysis | None,
        Option(
            "Vary the settings (or the one in which the paper does it): patch, one card at a time; adding, cards one "
            "by one; selectors, one left out; documents, how many are generated and kept.",
            panel="The comparison",
        ),
    ] = None,
    limit: Annotated[
        int | None, Option("Questions of each task, drawn with the seed.", default="all", least=1)
    ] = None,
    shots: Annotated[
        int | None,
        Option(
            "Demonstrations for each question.", default="all of the task", least=0, panel="The comparison"
        ),
    ] = None,
    price_in: Annotated[
        float | None,
        Option(
            "Price of a million tokens that the LLM reads, in any currency.", least=0, panel="The comparison"
        ),
    ] = None,
    price_out: Annotated[
        float | None, Option("Price of a million tokens that it generates.", least=0, panel="The comparison")
    ] = None,
    preset: Annotated[Paper | None, Option("Settings and options of a paper.", panel="As in a paper")] = None,
    hub: "Hub | None" = None,
    on_event: OnEvent = ignore,
    cluster: RayOptions | None = None,
    **options: Any,
) -> Evaluation:
    """Ask the same questions of tasks under each setting, and store the results as a run of the hub.

    `options`: those of AskOptions, except mode and select, which are settings here, and of BaselineOptions. A question
    that fails gets a result with its error, which counts as wrong; `resume` asks it again. A gate in a setting's name
    overrides --gate; without both, bottom-up always uses cards, and in top-down and hybrid the LLM decides. `cluster`:
    where to ask; None: in this process.

    Raises UsageError for a wrong option or file, HubError if a card is not found, ModelUnavailable.
    """
    names = (declared(AskOptions) | declared(BaselineOptions)).keys() - {"mode", "select"}
    check_keywords("evaluate", options, names)
    arguments = {
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
    check_values(evaluate, arguments)
    from kcard.api.eval_plan import prepare

    hub = hub or _hub()
    prepared = prepare({**arguments, **options}, hub)
    if cluster is None:
        _check_selectors(prepared, prepared.settings, on_event)
    return _complete(prepared, _storage(hub).create(prepared.plan), hub, on_event, cluster)


@documented
def resume(
    number: int,
    *,
    hub: "Hub | None" = None,
    on_event: OnEvent = ignore,
    llm: "str | LLM | Callable[[str], str] | None" = None,
    path: Sequence[str] = (),
    cluster: RayOptions | None = None,
) -> Evaluation:
    """Resume a run: ask the questions that are missing or failed.

    llm      replaces an LLM that was an object, in Python
    path     new paths of the tasks' files, if they were moved
    cluster  where to ask; None: in this process

    Raises HubError for an unknown run, and UsageError if a task's file or a card has changed.
    """
    hub = hub or _hub()
    storage = _storage(hub)
    run = storage.get(number)
    prepared = prepared_again(run, hub, llm, path)
    if cluster is None:
        left = {setting for _, setting, _ in missing_keys(run, storage)}
        _check_selectors(prepared, [each for each in prepared.settings if each.name in left], on_event)
    return _complete(prepared, run, hub, on_event, cluster)


@documented
def rerun(
    number: int,
    *,
    hub: "Hub | None" = None,
    on_event: OnEvent = ignore,
    llm: "str | LLM | Callable[[str], str] | None" = None,
    path: Sequence[str] = (),
    cluster: RayOptions | None = None,
) -> Evaluation:
    """Ask everything of a run again, as a new run. Arguments and errors as those of `resume`."""
    hub = hub or _hub()
    prepared = prepared_again(_storage(hub).get(number), hub, llm, path)
    if cluster is None:
        _check_selectors(prepared, prepared.settings, on_event)
    return _complete(prepared, _storage(hub).create(prepared.plan), hub, on_event, cluster)


@documented
def evaluation(number: int, *, hub: "Hub | None" = None) -> Evaluation:
    """Return the summary of a stored run. Raises HubError for an unknown run."""
    from kcard.evaluation.runs.summary import summarise

    storage = _storage(hub or _hub())
    run = storage.get(number)
    return Evaluation(run, tuple(summarise(run.plan, storage.results(number))))


@documented
def export(number: int, folder: Path | str, *, hub: "Hub | None" = None) -> list[Path]:
    """Write a run's eval.yaml and .eval_results/*.yaml into a folder, and return the files.

    Raises HubError for an unknown run, UsageError where the folder can't be written.
    """
    from kcard.evaluation.runs.summary import write_results

    summary = evaluation(number, hub=hub)
    try:
        return write_results(summary.run, summary.rows, Path(folder).expanduser())
    except OSError as error:
        raise UsageError(f"can't write the results to {folder}: {error.strerror or error}") from error


def prepared_again(
    run: "Run", hub: "Hub", llm: "str | LLM | Callable[[str], str] | None", path: Sequence[str]
) -> "EvaluationPlan":
    """Prepare a stored run again, and check that its tasks and cards are unchanged."""
    from kcard.api.eval_plan import prepare

    changed = {**({"llm": llm} if llm is not None else {}), **({"path": list(path)} if path else {})}
    options: Mapping[str, Any] = {**run.plan.options, **changed}
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


def _hub() -> "Hub":
    from kcard.hub.registry import Hub

    return Hub()


def _storage(hub: "Hub") -> "RunStorage":
    from kcard.evaluation.runs.run import RunStorage

    return RunStorage(hub.runs)


def _complete(
    prepared: "EvaluationPlan",
    run: "Run",
    hub: "Hub",
    on_event: OnEvent,
    cluster: RayOptions | None,
) -> Evaluation:
    """Ask every question of the run that has no result, or one with an error; return the summary of the run.

    Each result is stored as it comes. `cluster`: where to ask; None: in this process.
    """
    storage = _storage(hub)
    for text in prepared.notes:
        on_event(note(text))
    runner = None
    if cluster is None:
        runner = _runner(prepared, lambda result: storage.append(run, [result]), hub, on_event)
    on_event(Event("run", f"run {run.number} is stored", done=run.number))
    missing = missing_keys(run, storage)
    done = run.plan.planned - len(missing)

    def report(now: int) -> None:
        on_event(Event("asking", done=done + now, total=run.plan.planned))

    if runner is not None:
        runner.ask(missing, lambda event: report(event.done))
    elif cluster is not None:
        ask_on_cluster(prepared, run, storage, missing, cluster, report)
    return evaluation(run.number, hub=hub)


# Report a run, with paired tests, analyses and the questions behind the numbers.


@documented
def report(
    run: Annotated[int, Option("Number of a run of `kcard eval`.", argument=True)],
    *,
    limit: Annotated[
        int,
        Option(
            "Questions that the page shows in full, starting with those on which settings differ.", least=0
        ),
    ] = 200,
    analysis: Annotated[
        str | None,
        Option(
            "One analysis instead of the table: NAME, or NAME=FILE.",
            default="on the page, all that find something",
        ),
    ] = None,
    hub: "Hub | None" = None,
) -> "Report":
    """Return the report of a stored run; `kcard.evaluation.report.page.write_page` writes it as a web page.

    Raises HubError for an unknown run, and UsageError for one without results, or an analysis that is unknown or finds
    nothing in this run.
    """
    check_values(report, {"limit": limit})
    from kcard.evaluation.analyses.analysis import analyse, run_applicable
    from kcard.evaluation.report.report import make_report, metrics_of
    from kcard.evaluation.runs.results import drop_texts

    storage = _storage(_hub() if hub is None else hub)
    stored = storage.get(run)
    results, metrics = [drop_texts(result) for result in storage.results(run)], metrics_of(stored)
    analyses = run_applicable(results, metrics) if analysis is None else [analyse(analysis, results, metrics)]
    return make_report(stored, results, limit, analyses, whole=storage.results(run) if limit else ())


def write_questions(run: int, path: Path | str, *, hub: "Hub | None" = None) -> Path:
    """Write every question of a run under every setting as CSV.

    Raises HubError for an unknown run, UsageError where the file can't be written.
    """
    from kcard.evaluation.report.report import metrics_of
    from kcard.evaluation.report.tables import question_lines, write_csv

    storage = _storage(_hub() if hub is None else hub)
    return write_csv(question_lines(storage.results(run), metrics_of(storage.get(run))), path)
