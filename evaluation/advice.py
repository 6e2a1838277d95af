"""Which kind of card serves a corpus best, by its exam, and what leaving a part out would cost."""

from kcard.evaluation.record import Exam

__all__ = ["advice"]

LITTLE = 0.02  # of recall


def advice(exam: Exam) -> str | None:
    """A sentence on a card of a model and an index; None for any other."""
    own = exam.own
    if own is None or own.model is None or own.index is None or own.recall is None:
        return None
    both, model, index = own.recall.mean, own.model.mean, own.index.mean
    alone = f"its model alone recalls {model:.2f}, its index alone {index:.2f}, both {both:.2f}"
    summary = f"of {own.questions} questions {alone}"
    if both - index <= LITTLE and index >= model:
        return f"{summary}: an index alone (--kind retrieval) serves this corpus; without it {both - model:.2f} is lost"
    if both - model <= LITTLE:
        return f"{summary}: the model alone (--kind model) serves this corpus as well, where its text must not travel"
    return (
        f"{summary}: leaving the index out costs {both - model:.2f}, leaving the model out {both - index:.2f}"
    )
