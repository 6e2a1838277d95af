"""Examine, audit and browse cards."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from kcard.cluster import RayOptions, complete_rows, json_ready, worker_device
from kcard.config import settings
from kcard.errors import CardError, UnknownCard, UsageError
from kcard.events import OnEvent, ignore
from kcard.io import Row
from kcard.options import Option, check_keywords, check_values, declared, documented

if TYPE_CHECKING:
    from kcard.evaluation.browse import CardReport
    from kcard.evaluation.records import Audit, Exam
    from kcard.evaluation.target import Target
    from kcard.hub.registry import Hub
    from kcard.interfaces import Checker


@documented
def exam(
    card: Annotated[
        "Path | str | Target",
        Option(
            "A draft's name, a card folder, or a published card (name@v2), which stays unchanged.",
            argument=True,
            command_line=str,
            completes="drafts",
        ),
    ],
    *,
    questions: Annotated[
        Path | str | None,
        Option(
            "Questions with answers (.jsonl, .json, .csv), reported separately.", command_line=Path | None
        ),
    ] = None,
    evidence: Annotated[
        Path | str | Sequence[Path | str],
        Option(
            "Independent text to measure factuality against: a path, or a name such as wikipedia. Repeatable.",
            command_line=list[str],
        ),
    ] = (),
    corpus: Annotated[
        Path | str | None,
        Option("The text of the corpus, for a card that carries only hashes.", command_line=str | None),
    ] = None,
    field: Annotated[str | None, Option("The corpus' field or column, as in training.")] = None,
    limit: Annotated[int, Option("Maximum number of questions about its corpus.", least=1)] = 100,
    seed: Annotated[int, Option("Seed of the sample of questions.")] = 0,
    checker: Annotated[
        "Checker | str", Option("The checker; `kcard selectors` lists them.", command_line=str)
    ] = "minilm",
    device: Annotated[str, Option("Device of the card: cpu, cuda or cuda:N.")] = "cpu",
    output: Annotated[
        Path | str | None,
        Option("Write the exam to this file instead of into the card.", command_line=Path | None),
    ] = None,
    on_event: OnEvent = ignore,
) -> "Exam":
    """Examine a card, write exam.json, routing.json and the results in README.md into its folder, and seal it again.

    `on_event` is called while the exam runs.

    An exam with fewer questions than the card's last one is not stored. The same card, arguments and checker give the
    same bytes. Raises UsageError for a wrong argument or question file, CorpusError for text that can't be read,
    CardError if there is nothing to ask, and what finding and loading the card raise; then, and after Ctrl-C, nothing
    is written.
    """
    check_values(exam, {"limit": limit})
    from kcard.evaluation.exam import explain_no_questions, has_fewer_questions, take_exam
    from kcard.evaluation.independent_evidence import read_independent
    from kcard.evaluation.questions import read_questions
    from kcard.evaluation.recall import Scorer, load_checker
    from kcard.evaluation.target import Target, find_target
    from kcard.io import write_text
    from kcard.training.execution import Execution

    Execution(device).place()
    target = card if isinstance(card, Target) else find_target(card, corpus, field)
    paths = [evidence] if isinstance(evidence, Path | str) else [*evidence]
    independent = read_independent(paths, target.digests, target.corpus)
    own_questions = None if questions is None else read_questions(questions)
    if not target.corpus and own_questions is None:
        raise CardError(explain_no_questions(target))
    judge, name = load_checker(checker, device)
    scorer = Scorer(judge, target.own_evidence if target.corpus else None, independent, on_event)
    taken = take_exam(target, own_questions, limit=limit, seed=seed, device=device, on_event=on_event)
    result, answers = taken.exam(scorer, name)
    if output is not None:
        write_text(Path(output).expanduser(), result.to_json())
    elif target.reference is None and not has_fewer_questions(target, result):
        target.keep(result, answers)
    return result


# Audit one card or many: generate documents for many queries, and score each one against independent evidence.


@documented
def audit(
    card: Annotated[
        "Path | str | Target",
        Option(
            "A published card (name@v2, namespace/name); else a draft's name or a card folder.",
            argument=True,
            command_line=str,
            completes="drafts",
        ),
    ],
    *,
    queries: Annotated[
        Path | str | None,
        Option(
            "Questions (.jsonl, .json, .csv, .txt), optionally with a `domain`.",
            default="questions about its own corpus, as in an exam",
            command_line=Path | None,
        ),
    ] = None,
    evidence: Annotated[
        Path | str | Sequence[Path | str],
        Option(
            "Evidence for factuality: a file, a folder, wikipedia. Repeatable.",
            command_line=list[str],
        ),
    ] = (),
    documents: Annotated[int, Option("Documents that the card generates for each query.", least=1)] = 3,
    limit: Annotated[int, Option("Maximum number of questions about its own corpus.", least=1)] = 200,
    checker: Annotated[
        "Checker | str", Option("The checker; `kcard selectors` lists them.", command_line=str)
    ] = "minilm",
    seed: Annotated[int, Option("Seed of the questions and of the card's sampling.")] = 0,
    worst: Annotated[int, Option("Number of the worst documents to store and show.", least=0)] = 5,
    device: Annotated[str, Option("Device of card and checker: cpu, cuda or cuda:N.")] = "cpu",
    engine: Annotated[
        Sequence[str] | None,
        Option(
            "A vLLM server that runs the cards of its base: vllm=URL. Repeatable.",
            default="as configured, else none",
            command_line=list[str] | None,
        ),
    ] = None,
    trust_remote_code: Annotated[
        bool, Option("Let the checker's model run code from its repository.")
    ] = False,
    output: Annotated[
        Path | str | None,
        Option(
            "Also write the audit to this file, as JSON; of several cards, a line for each.",
            command_line=Path | None,
        ),
    ] = None,
    hub: "Hub | None" = None,
    keep: bool = True,
    on_event: OnEvent = ignore,
) -> "Audit":
    """Audit a card; the hub stores the audit of a published card, unless `keep` is false.

    `on_event` is called while the audit runs. Without evidence only
    faithfulness to the card's own corpus is measured.

    The same card, arguments and checker give the same audit. Raises UsageError for a wrong argument or file,
    CorpusError for evidence that can't be read, CardError if there is nothing to ask, and what finding and loading the
    card raise; then, and after Ctrl-C, nothing is stored.
    """
    check_values(audit, {"documents": documents, "limit": limit, "worst": worst})
    if output is not None:
        folder = Path(output).expanduser().absolute().parent
        if not folder.is_dir():
            raise UsageError(f"output {output}: the folder {folder} does not exist")
    from kcard.cards.models.loader import Loader
    from kcard.evaluation.audit import make_finding, read_or_make_queries, run_audit
    from kcard.evaluation.independent_evidence import read_independent
    from kcard.evaluation.recall import Scorer, load_checker
    from kcard.evaluation.target import Target, find_published_target
    from kcard.hub.registry import Hub
    from kcard.integrators.assembly import make_engines
    from kcard.io import write_text
    from kcard.training.execution import Execution

    # Check the arguments, and read queries and evidence.
    Execution(device).place()
    target = card if isinstance(card, Target) else find_published_target(card, hub)
    audit_queries = read_or_make_queries(target, queries, limit, seed)
    specs = [evidence] if isinstance(evidence, Path | str) else [*evidence]
    independent = read_independent(specs, target.digests, target.corpus)
    # Have the card generate, and score its documents.
    judge, name = load_checker(checker, device, trust_remote_code, on_event)
    scorer = Scorer(judge, target.own_evidence if target.corpus else None, independent, on_event)
    models = Loader(device=device, engines=make_engines([engine] if isinstance(engine, str) else engine))
    settings = {"documents": documents, "limit": limit, "seed": seed, "worst": worst}
    result = run_audit(target, audit_queries, scorer, models, checker=name, **settings)
    # Store the audit.
    if keep and target.reference is not None:
        hub = Hub() if hub is None else hub
        hub.audits.add(hub.get(target.reference), make_finding(result))
    if output is not None:
        write_text(Path(output).expanduser(), result.to_json())
    return result


def audit_many(
    cards: Sequence[str | Path],
    *,
    output: Path | str | None = None,
    resume: bool = False,
    cluster: RayOptions | None = None,
    hub: "Hub | None" = None,
    on_event: OnEvent = ignore,
    **options: Any,
) -> tuple[Row, ...]:
    """Audit cards; the hub stores the audits of published ones. `kcard audit` with several cards does the same.

    cards     published cards, drafts, folders, pools (pool:NAME) and domain subtrees (biomedical/)
    output    a file for the rows, a JSON line each
    resume    audit only the cards that are missing in `output`, or failed
    cluster   where to audit; None: one card after another in this process
    on_event  called with the number of finished cards (kind cards)
    options   those of kcard.audit

    Returns a row for each card: `card`, its reference or folder, `options`, and `audit`, as
    kcard.evaluation.records.Audit has it, or the `error` of a card that failed. Raises UsageError,
    HubError for a card that is not found, and ClusterError; finished audits are kept.
    """
    from kcard.evaluation.audit import make_finding
    from kcard.evaluation.records import Audit
    from kcard.hub.registry import Hub

    # Check the options, and make them ready for workers.
    check_keywords("audit_many", options, declared(audit).keys() - {"card", "output"})
    check_values(audit, options)
    if resume and output is None:
        raise UsageError("resume needs output: the file of the earlier run")
    hub = Hub() if hub is None else hub
    values = {key: value for key, value in options.items() if value is not None}
    device = str(values.get("device", "cpu"))
    ready = json_ready(values | {"device": worker_device(cluster, device)})
    names: dict[str, None] = {}
    for card in cards:
        names |= dict.fromkeys(references_of(card, hub))

    def keep(row: Row) -> None:
        """Store the audit of a published card in the hub, once."""
        if Path(row["card"]).is_absolute():
            return
        version, finding = hub.get(row["card"]), make_finding(Audit.from_json(json.dumps(row["audit"])))
        earlier = [audit.finding for audit in hub.audits.list(version.name)]
        if finding not in earlier:
            hub.audits.add(version, finding)

    return complete_rows(
        _audit_row,
        [{"card": name, "options": ready} for name in names],
        None if output is None else Path(output).expanduser(),
        resume=resume,
        cluster=cluster,
        device=device,
        on_event=on_event,
        check=keep,
    )


def references_of(card: str | Path, hub: "Hub") -> Iterator[str]:
    """Yield the references of published cards that a name stands for, or the folder of an unpublished one."""
    from kcard.hub.selection import POOL, find_card_folder, is_hub_name

    name = str(card)
    is_domain = name.endswith("/") and not Path(name).is_dir()
    if isinstance(card, str) and (name.startswith(POOL) or is_domain):
        for version in hub.select([name]).versions:
            yield version.reference
        return
    if is_hub_name(card):
        with suppress(UnknownCard):  # it is a draft or a folder
            yield hub.get(name).reference
            return
    yield str(find_card_folder(settings().drafts, card).expanduser().absolute())


def _audit_row(card: str, options: Row) -> Row:
    """Audit a published card (name@v2), or the one in a folder (an absolute path)."""
    result = audit(Path(card) if Path(card).is_absolute() else card, keep=False, **options)
    return {"audit": json.loads(result.to_json())}


# Browse: the cards of a hub with the results of their exams and audits, filtered and sorted.

Sort = Literal["name", "domain", "base", "size", "recall", "lift", "faithfulness", "factuality"]


@documented
def browse(
    name: Annotated[
        str | None, Option("One card, in detail.", default="all", argument=True, completes="published")
    ] = None,
    *,
    text: Annotated[str | None, Option("Only cards with these words.")] = None,
    domain: Annotated[str | None, Option("Only this domain and those below it.")] = None,
    base: Annotated[str | None, Option("Only cards made from this base model.")] = None,
    sort: Annotated[Sort, Option("What to sort by.")] = "name",
    hub: "Hub | None" = None,
) -> "list[CardReport]":
    """Return the newest version of every card in the hub, or the one that `name` refers to (card, card@v2, ...).

    Raises UnknownCard, and UsageError for an unknown sort. An exam or audit that can't be read is a note.
    """
    check_values(browse, {"sort": sort})
    from kcard.evaluation.browse import SORTS, make_reports
    from kcard.hub.registry import Hub

    hub = Hub() if hub is None else hub
    chosen = hub.list(text=text, domain=domain, base=base) if name is None else [hub.get(name)]
    return sorted(make_reports(hub, chosen), key=SORTS[sort])
