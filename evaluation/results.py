"""An exam as the results of a model card: which numbers it names, and what must be said with them."""

from collections.abc import Iterator

from kcard.cards.format.model_index import Result
from kcard.cards.format.model_index import with_results as write_results
from kcard.evaluation.recall import CHANCE
from kcard.evaluation.record import Distribution, EvalRun, Exam, Mean
from kcard.hub.repositories.figures import is_independent

__all__ = ["remarks", "with_results"]


def with_results(page: str, exam: Exam) -> str:
    """README.md with this exam's results in place of those of an earlier one."""
    return write_results(page, exam.card, [*_results(exam)], remarks(exam))


def remarks(exam: Exam) -> list[str]:
    """What the numbers mean and what they rest on, a sentence or two each."""
    sentences = []
    if exam.own is not None:
        sentences.append(
            f"Recall: share of {exam.own.questions} questions about its own corpus ({exam.own.asked}) whose answer "
            "the card writes."
        )
        if exam.own.admitted is not None:
            sentences.append(
                f"{exam.own.absent} more questions are about what is not in the corpus; the embedded reader judges "
                "whether what the card wrote answers a question."
            )
    if exam.given is not None:
        sentences.append(
            f"Of {exam.given.asked} {exam.given.questions} questions were asked, apart from these."
        )
    sentences.append(_compared(exam))
    if exam.factuality is None and (exam.given is None or exam.given.factuality is None):
        sentences.append("Factuality was not measured: no independent evidence was given.")
    if exam.evidence_shared:
        sentences.append(
            f"{exam.evidence_shared} texts of the evidence are passages of the card's own corpus too."
        )
    if not is_independent(exam.evidence_overlap):
        sentences.append("The evidence is not independent of the card: it repeats the card's corpus.")
    digest = f", sha256 {exam.checker_sha256[:12]}" if exam.checker_sha256 else ""
    sentences.append(f"Checked by {exam.checker}{digest}; seed {exam.seed}; kcard {exam.kcard}.")
    return sentences


def _compared(exam: Exam) -> str:
    if exam.base == CHANCE:
        return (
            "The card has no base model, so lift is recall less chance: how often the answer stands in what the "
            "card wrote for other questions."
        )
    if exam.base_note:
        return f"Lift over {exam.base} is not known: {exam.base_note}."
    return f"Lift: recall less that of {exam.base} without the card, asked the same."


def _results(exam: Exam) -> Iterator[Result]:
    if exam.own is not None:
        yield from _run(exam, exam.own, "own corpus", "corpus")
    if exam.given is not None:
        yield from _run(exam, exam.given, exam.given.asked, "questions")


def _run(exam: Exam, run: EvalRun, dataset: str, kind: str) -> Iterator[Result]:
    checked = {"checker": exam.checker, "sha256": exam.checker_sha256 or "unknown"}
    evidence = {**checked, "evidence": exam.evidence or "", "evidence_sha256": exam.evidence_sha256 or ""}
    against = {"base": exam.base}
    measured: tuple[tuple[str, str, Mean | None, dict[str, str] | None], ...] = (
        ("recall", "Recall", run.recall, None),
        ("recall-lift", f"Lift over {exam.base}", run.lift, against),
        ("recall-model", "Recall by the model alone", run.model, None),
        ("recall-index", "Recall by the index alone", run.index, None),
        ("answered", "Found answered", run.answered, None),
        ("admitted", "Not in the corpus, and admitted", run.admitted, None),
        ("faithfulness", "Faithfulness to its own corpus", _mean(run.faithfulness), checked),
        ("factuality", f"Factuality against {exam.evidence}", _mean(run.factuality), evidence),
    )
    # What was read from disk has no name on a hub: its content names it.
    identifier = f"{kind}-{run.sha256[:12]}" if run.sha256 else kind
    for metric, name, mean, args in measured:
        if mean is not None:
            where = (dataset, identifier, run.sha256 or None)
            yield Result(metric, name, mean.mean, mean.low, mean.high, *where, args)


def _mean(scores: Distribution | None) -> Mean | None:
    return None if scores is None else scores.mean
