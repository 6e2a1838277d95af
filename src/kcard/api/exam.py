"""exam: what a card knows of its corpus and of a given file, and how far it can be trusted."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kcard.errors import CardError
from kcard.option import Option, check_values, documented

if TYPE_CHECKING:
    from kcard.evaluation.record import Exam
    from kcard.evaluation.target import Target
    from kcard.protocols import Checker

__all__ = ["exam"]


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
    report: Callable[[Any], None] | None = None,
) -> "Exam":
    """Examine a card, write exam.json, routing.json and the results in README.md into its folder, and seal it again.

    `report` is called with Progress (kcard.evaluation.progress) while the exam runs.

    An exam of fewer questions than the card's last one is not written into it. The same card, arguments and checker
    give the same numbers and the same bytes. Raises UsageError for a wrong argument or question file, CorpusError for
    text that can't be read, CardError where nothing can be asked, and what finding and loading the card raise.
    Nothing is written then, nor after Ctrl-C.
    """
    check_values(exam, {"limit": limit})
    from kcard.evaluation.asking import check_device
    from kcard.evaluation.exam import examine, is_smaller, nothing_to_ask
    from kcard.evaluation.independent import read_independent
    from kcard.evaluation.progress import silent
    from kcard.evaluation.question_file import read_questions
    from kcard.evaluation.scorer import Scorer, named_checker
    from kcard.evaluation.target import Target, find
    from kcard.files import write_text

    check_device(device)
    found = card if isinstance(card, Target) else find(card, corpus, field)
    paths = [evidence] if isinstance(evidence, Path | str) else [*evidence]
    independent = read_independent(paths, found.digests, found.corpus)
    given = None if questions is None else read_questions(questions)
    if not found.corpus and given is None:
        raise CardError(nothing_to_ask(found))
    judge, name = named_checker(checker, device)
    scorer = Scorer(judge, found.own_evidence if found.corpus else None, independent, report or silent)
    made, answered = examine(found, given, scorer, name, limit=limit, seed=seed, device=device)
    if output is not None:
        write_text(Path(output).expanduser(), made.to_json())
    elif found.reference is None and not is_smaller(found, made):
        found.keep(made, answered)
    return made
