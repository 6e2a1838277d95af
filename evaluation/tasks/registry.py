"""Tasks by name, the built-in ones and a user's own (entry points of the group `kcard.tasks`)."""

from pathlib import Path

from kcard import plugins
from kcard.evaluation.entries import parsed_file
from kcard.evaluation.tasks.task import Task, TaskData
from kcard.rows import suffix

__all__ = ["read_task", "recognised", "task_names"]

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


def recognised(path: Path) -> str:
    """The task whose data a file says that it holds ("dataset": "MidtermQA-binary"); jsonl where it says nothing.

    So do the files of Knowledge Card's repository, and JSON of {name, split, rows}. Raises UsageError for a JSON file
    that can't be read.
    """
    data = parsed_file(path, "questions") if suffix(path) == ".json" else None
    if not isinstance(data, dict):
        return "jsonl"
    said = str(data.get("dataset") or (data.get("name") if "split" in data else "")).casefold()
    return max((name for name in task_names() if said.startswith(name)), key=len, default="jsonl")
