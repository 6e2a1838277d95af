"""Find the confidence above which the memory's answer counts as knowledge.

Known: trained facts in a held-out wording. Unseen: facts held out of training, and invented questions. At most 2 % of
the unseen exceed the threshold; the slope is that of a logistic fit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kcard.llms.embedded_llm import EmbeddedMemory, log_odds
from recipes.memory.questions import Unanswerable, held_out

PASSING = 0.02
COUNT = 300


@dataclass(frozen=True)
class Calibration:
    """The logistic, and the figures it rests on (all shares in [0, 1])."""

    slope: float
    threshold: float
    recall: float
    recall_reworded: float
    known_kept: float
    unseen_ask: float
    kept_out_ask: float
    auroc: float


def calibrate(
    memory: EmbeddedMemory, learnt: Mapping[str, str], kept_out: Sequence[str], strange: Unanswerable
) -> Calibration:
    sample = strange.words.rng.sample(list(learnt), min(COUNT, len(learnt)))
    plain = [memory.recall(q).answer == learnt[q] for q in sample]
    other = [(q, form) for q in sample if (form := held_out(q))]
    recalled = [(memory.recall(form), learnt[q]) for q, form in other]
    seen = np.array([log_odds(r.least_log_probability) for r, _ in recalled])
    invented = [strange.draw() for _ in range(COUNT)]
    apart = _confidence(memory, kept_out)
    unseen = np.concatenate([apart, _confidence(memory, invented)])
    threshold = float(np.quantile(unseen, 1 - PASSING))
    return Calibration(
        slope=_slope(seen, unseen, threshold),
        threshold=threshold,
        recall=float(np.mean(plain)),
        recall_reworded=float(np.mean([r.answer == answer for r, answer in recalled])),
        known_kept=float((seen > threshold).mean()),
        unseen_ask=float((unseen <= threshold).mean()),
        kept_out_ask=float((apart <= threshold).mean()),
        auroc=auroc(seen, unseen),
    )


def _confidence(memory: EmbeddedMemory, questions: Sequence[str]) -> np.ndarray:
    return np.array([log_odds(memory.recall(q).least_log_probability) for q in questions])


def auroc(high: np.ndarray, low: np.ndarray) -> float:
    """The chance that one of `high` lies above one of `low`; ties count half."""
    return float(np.mean((high[:, None] > low[None]) + 0.5 * (high[:, None] == low[None])))


def _slope(seen: np.ndarray, unseen: np.ndarray, threshold: float) -> float:
    """The logistic's slope of greatest likelihood, both groups weighing the same, its midpoint given."""
    slopes = np.geomspace(0.1, 100, 120)
    up, down = seen - threshold, unseen - threshold
    cost = [np.logaddexp(0, -s * up).mean() + np.logaddexp(0, s * down).mean() for s in slopes]
    return float(slopes[int(np.argmin(cost))])
