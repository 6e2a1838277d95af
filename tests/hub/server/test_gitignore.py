"""Which paths a .gitignore leaves out: as git itself decided for each of these."""

import time

import pytest

from kcard.hub.refusals import TooLarge
from kcard.hub.server.writing.gitignore import gitignore


@pytest.mark.parametrize(
    ("patterns", "path", "ignored"),
    [
        ("*.log", "a.log", True),
        ("*.log", "a/b.log", True),
        ("*.log", "a.log.txt", False),
        ("*.log", "a.log/b.txt", True),
        ("/a", "a", True),
        ("/a", "b/a", False),
        ("a/b", "a/b", True),
        ("a/b", "x/a/b", False),
        ("build/", "build", False),
        ("build/", "build/a.txt", True),
        ("build/", "x/build/a.txt", True),
        ("**/c", "c", True),
        ("**/c", "a/b/c", True),
        ("a/**", "a", False),
        ("a/**", "a/b/c", True),
        ("d/**/e", "d/e", True),
        ("d/**/e", "d/x/y/e", True),
        ("*.t?t", "a.txt", True),
        ("[ab].x", "a.x", True),
        ("[^ab].x", "a.x", False),
        ("[!ab].x", "c.x", True),
        ("\\#x", "#x", True),
        ("# x", "# x", False),
        ("\\!z", "!z", True),
        ("\\*", "a", False),
        ("\\*", "*", True),
        ("x y", "x y", True),
        ("x  ", "x", True),
        ("x\\ ", "x ", True),
        ("*.log\n!keep.log", "keep.log", False),
        ("*.log\n!keep.log", "a.log", True),
        ("!keep.log\n*.log", "keep.log", True),
        ("a/\n!a/b", "a/b", True),
        ("a/*\n!a/b", "a/b", False),
        ("", "a", False),
        ("/", "a", False),
        ("*", "a/b", True),
    ],
)
def test_paths_are_left_out_as_by_git(patterns: str, path: str, ignored: bool) -> None:
    assert gitignore(patterns)(path) is ignored


def test_patterns_that_would_backtrack_are_matched_at_once() -> None:
    started = time.monotonic()
    for pattern in ("*a" * 100 + "b", "**/" * 500 + "b", "[" * 1000, "a" + "*?" * 100 + "z"):
        assert not gitignore(pattern)("/".join(["a" * 250] * 4))
    assert time.monotonic() - started < 1


def test_more_patterns_than_one_request_may_cost_are_refused_rather_than_overlooked() -> None:
    with pytest.raises(TooLarge):
        gitignore("a/b/c\n" * 1_000)
