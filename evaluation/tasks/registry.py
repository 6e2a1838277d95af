"""Tasks by name, the built-in ones and a user's own (entry points of the group `kcard.tasks`)."""

from pathlib import Path

from kcard import plugins
from kcard.evaluation.tasks.task import Task, TaskData

__all__ = ["read_task", "task_names"]

GROUP = "kcard.tasks"


def task_names() -> list[str]:
    """The tasks there are, sorted."""
    return plugins.names(GROUP)


def read_task(name: str, path: Path | str) -> TaskData:
    """The questions of the task `name` in a file or folder of its own layout.

    Raises UsageError for an unknown name, and what Task.read raises.
    """
    task: Task = plugins.load(GROUP, name)
    return task.read(Path(path).expanduser())
