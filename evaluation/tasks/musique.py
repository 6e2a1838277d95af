"""MuSiQue (Trivedi et al., 2022): questions of two to four hops."""

from dataclasses import replace
from pathlib import Path

from kcard.evaluation.tasks.multihop import read_multihop
from kcard.evaluation.tasks.task import TaskData

__all__ = ["read"]


def read(path: Path) -> TaskData:
    """Its own JSONL ({id, question, answer, answer_aliases, paragraphs}); the id's "2hop", "3hop1" ... is the group."""
    data = read_multihop("musique", path)
    return replace(data, items=tuple(replace(item, group=item.id.split("__")[0]) for item in data.items))
