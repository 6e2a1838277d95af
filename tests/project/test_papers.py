"""docs/papers.md: every command of the papers' tables is one that kcard takes."""

import re
import shlex
from pathlib import Path

import pytest

from kcard.api.eval_settings import parse_settings
from tests.command_line import check_command

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
COMMANDS = [
    line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()
]


def test_each_paper_has_all_of_its_tables() -> None:
    papers = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    tables = [len(re.findall(r"^### Table \d+: ", paper, re.MULTILINE)) for paper in papers]
    assert [count for count in tables if count] == [11, 6, 4, 4]
    assert [paper.count("\n### Figures\n") for paper in papers] == [int(count > 0) for count in tables]


@pytest.mark.parametrize("command", sorted({*COMMANDS}))
def test_every_command_is_one_that_kcard_takes(command: str) -> None:
    if command.startswith("python "):
        program = command.removeprefix("python ").removeprefix("-m ").split()[0]
        assert (ROOT / (program.removesuffix(".py").replace(".", "/") + ".py")).is_file()
        return
    values = check_command(shlex.split(command.replace("RUN", "1"))[1:])
    if command.startswith("kcard eval") and values["settings"]:
        assert parse_settings(values["settings"])
