"""Questions with their answers and drafts as rows of numbers, and these at the scales that they are to count with."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kcard.gates.draft_features import COUNT, answer_of, features, plain
from kcard.gates.query import Query
from kcard.gates.representation import Representation, finite

__all__ = ["Floats", "inputs", "standardised"]

Floats = npt.NDArray[np.float64]
# How far features count beside each other, per standard deviation; a penalty shrinks what is small first.
OF_FORM = 0.5
OF_VECTORS = 0.2
LEAST = 1e-9  # spread of a feature below which it is the same everywhere


def inputs(representation: Representation, queries: Sequence[Query], sure: bool) -> Floats:
    """Shape (n, d): what answers and drafts tell of themselves, COUNT numbers or one more, then the vectors of
    questions and of answers. NaN: not known."""
    questions = [query.question for query in queries]
    drafts = [plain(query.draft) if query.draft else None for query in queries]
    answers = [
        answer_of(plain(query.answer or draft or "")) for query, draft in zip(queries, drafts, strict=True)
    ]
    form = np.array(
        [features(*three) for three in zip(questions, answers, drafts, strict=True)], dtype=np.float64
    ).reshape(len(queries), COUNT)
    if sure:
        known = [query.draft_log_probability for query in queries]
        form = np.column_stack([form, [np.nan if value is None else value for value in known]])
    return np.hstack([form, finite(representation, questions), finite(representation, answers)])


def standardised(values: Floats, of_form: int) -> tuple[Floats, Floats, Floats]:
    """The values about their mean, each column at the scale that it is to count with; that scale, and the mean.

    What is not known is at the mean; a column in which nothing is known, or all is the same, does not count.
    `of_form`: how many of the columns are not of vectors.
    """
    known = ~np.isnan(values)
    counts = np.maximum(known.sum(axis=0), 1)
    centre = np.where(known, values, 0).sum(axis=0) / counts
    apart = np.where(known, values - centre, 0)
    spread = np.sqrt((apart**2).sum(axis=0) / counts)
    weight = np.full(values.shape[1], OF_VECTORS)
    weight[:of_form] = OF_FORM
    scale = np.where(spread > LEAST, weight / np.maximum(spread, LEAST), 0.0)
    return apart * scale, scale, centre
