"""`--help` fits a screen, `--help-all` has every option under its heading, and other tools' commands are known."""

import re

import pytest

from kcard.cli.main import COMMANDS, GROUPS, OTHER_NAMES
from tests.command import Kcard

FLAG = re.compile(r"^  (?:-\w, )?(--[a-z][a-z0-9-]*)", re.MULTILINE)
HEADING = re.compile(r"^(\w.*):$", re.MULTILINE)


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")


@pytest.mark.parametrize("command", ["ask", "chat", "serve", "eval", "train", "train-many", "gate collect"])
def test_the_short_help_has_what_most_need_and_the_long_one_everything(command: str, kcard: Kcard) -> None:
    code, short, _ = kcard(*command.split(), "--help")
    assert code == 0
    assert len(short.splitlines()) <= 62
    assert max(map(len, short.splitlines())) <= 80
    code, long, _ = kcard(*command.split(), "--help-all")
    assert code == 0
    shown, every = FLAG.findall(short), FLAG.findall(long)
    assert len(every) == len(set(every))
    assert {"--help-all", "--help", "--base" if command.startswith("train") else "--llm"} <= set(shown)
    left = int(re.search(r"(\d+) more options", short)[1])  # type: ignore[index]
    assert len(every) == len(shown) + left
    headings = set(HEADING.findall(long)) - set(HEADING.findall(short))
    assert "The machine" in headings
    for heading in headings:
        assert heading[1:] in " ".join(short.split())


def test_what_other_tools_call_a_command_is_answered_with_its_name_here(kcard: Kcard) -> None:
    for other, ours in OTHER_NAMES.items():
        assert other not in COMMANDS
        assert ours.split()[0] in COMMANDS
        assert kcard(other, "x").error == f"kcard: no command {other!r}: it is `kcard {ours}`"
        assert kcard(*ours.split(), "--help").code == 0


def test_a_bare_kcard_says_how_to_begin_and_lists_every_command_once(kcard: Kcard) -> None:
    shown = kcard("--help").out
    bare = kcard()
    assert shown.strip() in bare.out + bare.err
    assert max(map(len, shown.splitlines())) <= 80
    begin = shown.split("Begin:\n")[1].split("\n\n")[0].splitlines()
    assert len(begin) == 3
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(COMMANDS)
    for name in listed:
        assert len(re.findall(rf"^  {name} ", shown, re.MULTILINE)) == 1, name


def test_help_all_shows_every_command_with_every_option(kcard: Kcard) -> None:
    done = kcard("--help-all")
    assert done.code == 0
    for name in COMMANDS:
        assert f"kcard {name}" in done.out.replace("python -m pytest.kcard", "kcard")
    for text in ("kcard hub threshold", "--max-cards", "--changed", "--corpus"):
        assert text in done.out.replace("python -m pytest.kcard", "kcard")
