"""HotpotQA (Yang et al., 2018): questions over two paragraphs, with distractors."""

from pathlib import Path

from kcard.evaluation.tasks.multihop import read_multihop
from kcard.evaluation.tasks.task import TaskData

__all__ = ["read"]


def read(path: Path) -> TaskData:
    """Its own JSON ({_id, question, answer, type, context}) or {id, question, answers, paragraphs}."""
    return read_multihop("hotpotqa", path)
