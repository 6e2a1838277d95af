"""Evaluate settings on the same questions, resume a run, report it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kcard.api.eval_run import ask_questions, prepare_again, run_storage
from kcard.api.eval_settings import DEFAULT_SETTINGS, EvalAnalysis
from kcard.cluster import RayOptions
from kcard.display import number
from kcard.errors import UsageError
from kcard.events import OnEvent, ignore
from kcard.integrators.options import AskOptions, BaselineOptions, Paper
from kcard.options import Option, check_keywords, check_values, declared, documented

if TYPE_CHECKING:
    from kcard.evaluation.report.report import Report
    from kcard.evaluation.runs.run import Run
    from kcard.evaluation.runs.summary import SettingSummary
    from kcard.hub.registry import Hub
    from kcard.interfaces import LLM


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
            missing, has_cost = 0, False
            cells = []
            for row in rows:
                missing += row.missing
                has_cost = has_cost or row.cost is not None
                tokens = "-"
                if row.tokens_in is not None and row.tokens_out is not None:
                    tokens = f"{row.tokens_in} + {row.tokens_out}"
                cells.append(
                    [
                        row.setting,
                        str(row.n),
                        f"{row.value:.3f}",
                        f"[{row.low:.3f}, {row.high:.3f}]",
                        number(row.p, ".2g"),
                        number(row.p_holm, ".2g"),
                        str(row.calls),
                        tokens,
                        f"{row.seconds:.1f}",
                        str(row.errors),
                        number(row.cost, ".4f"),
                    ]
                )
            headings = ["setting", "n", task.metric, "95 % interval", "p", "p, all settings"]
            headings += ["calls", "tokens", "seconds", "errors", "cost"]
            if not has_cost:
                headings.pop()
                cells = [row[:-1] for row in cells]
            caption = f"{task.name}, {len(task.ids)} of {task.total} questions, {self.run.plan.llm}"
            if missing:
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
            default=DEFAULT_SETTINGS,
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

    hub = _hub(hub)
    run = ask_questions(prepare({**arguments, **options}, hub), hub, on_event, cluster)
    return evaluation(run.number, hub=hub)


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
    hub = _hub(hub)
    run = run_storage(hub).get(number)
    ask_questions(prepare_again(run, hub, llm, path), hub, on_event, cluster, run)
    return evaluation(number, hub=hub)


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
    hub = _hub(hub)
    prepared = prepare_again(run_storage(hub).get(number), hub, llm, path)
    run = ask_questions(prepared, hub, on_event, cluster)
    return evaluation(run.number, hub=hub)


@documented
def evaluation(number: int, *, hub: "Hub | None" = None) -> Evaluation:
    """Return the summary of a stored run. Raises HubError for an unknown run."""
    from kcard.evaluation.runs.summary import summarise

    storage = run_storage(_hub(hub))
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


def _hub(hub: "Hub | None") -> "Hub":
    """Return the hub, or the user's own."""
    from kcard.hub.registry import Hub

    return Hub() if hub is None else hub


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

    storage = run_storage(_hub(hub))
    stored = storage.get(run)
    metrics = metrics_of(stored)
    results = [drop_texts(result) for result in storage.results(run)]
    analyses = run_applicable(results, metrics) if analysis is None else [analyse(analysis, results, metrics)]
    return make_report(stored, results, limit, analyses, whole=storage.results(run) if limit else ())


def write_questions(run: int, path: Path | str, *, hub: "Hub | None" = None) -> Path:
    """Write every question of a run under every setting as CSV.

    Raises HubError for an unknown run, UsageError where the file can't be written.
    """
    from kcard.evaluation.report.report import metrics_of
    from kcard.evaluation.report.tables import question_lines, write_csv

    storage = run_storage(_hub(hub))
    return write_csv(question_lines(storage.results(run), metrics_of(storage.get(run))), path)
