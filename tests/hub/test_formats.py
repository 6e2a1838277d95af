"""Paths in a repository: what could be another place, file or device for some client is refused."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcard.hub.checks import formats
from kcard.hub.checks.formats import check_path, check_tree, fold_path
from kcard.hub.errors import Dangerous, Invalid, TooLarge


@pytest.mark.parametrize(
    "path",
    [
        "README.md",
        ".gitattributes",
        ".eval_results/a.yaml",
        "data/train-00000-of-00001.parquet",
        "a/b/c/d.json",
        "Über uns.md",
        "日本語/説明.md",
        "..a.json",
        "a..b",
        "console.txt",
        "common.txt",
        "git/x.txt",
        ".github/x.md",
    ],
)
def test_plain_path_is_itself(path: str) -> None:
    assert check_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../up.txt",
        "a/../../b",
        "a/./b",
        ".",
        "..",
        "a//b",
        "a/",
        "a\\b",
        "..\\up",
        "C:\\x",
        "c:x",
        "a:stream",
        "nul\0l",
        "a\nb",
        "a\tb",
        "a\x7fb",
        "a\x85b",
        "a\u2028b",
        "half\ud800",
        "\ue000",
        ".git/config",
        "a/.GIT/hooks/x",
        ".Git",
        "．git/x",
        ".g\u200cit/config",
        "git~1/x",
        "GIT~1",
        ".git ",
        "a\u202egnp.txt",
        "zero\u200bwidth",
        "a.",
        "a ",
        " a",
        "a./b",
        "...",
        "con",
        "CON.txt",
        "a/nul",
        "aux.json",
        "COM1.md",
        "lpt9",
        "com¹.txt",
        "con .txt",
        "conin$",
        'a"b',
        "a<b",
        "a|b",
        "a?b",
        "a*b",
        "x" * 256,
        "é" * 128,
    ],
)
def test_path_that_is_something_else_somewhere_is_refused(path: str) -> None:
    with pytest.raises(Dangerous, match="unsafe path"):
        check_path(path)


def test_long_and_deep_paths_are_refused() -> None:
    check_path("/".join(["x" * 255] * 4))
    check_path("/".join(["x"] * 32))
    with pytest.raises(Invalid, match="the limit is 1024 bytes"):
        check_path("/".join(["x" * 255] * 5))
    with pytest.raises(Invalid, match="the limit is 1024 bytes"):
        check_path("/".join(["é" * 120] * 5))
    with pytest.raises(Invalid, match="the limit is 32"):
        check_path("/".join(["x"] * 33))


@given(st.text(max_size=60))
def test_accepted_path_stays_inside_its_folder(text: str) -> None:
    try:
        path = check_path(text)
    except Invalid:
        return
    folder = Path("/a/folder")
    assert folder in (folder / path).parents
    assert (folder / path).relative_to(folder).as_posix() == path


@given(st.text(max_size=40))
def test_folding_is_the_same_for_every_case_and_normal_form(text: str) -> None:
    import unicodedata

    assert fold_path(fold_path(text)) == fold_path(text)
    for form in ("NFC", "NFD"):
        assert fold_path(unicodedata.normalize(form, text)) == fold_path(text)
    if not any(c in "ıſ" or unicodedata.combining(c) for c in text):
        assert fold_path(text.lower()) == fold_path(text)


@pytest.mark.parametrize(
    "tree",
    [
        ["README.md", "readme.MD"],
        ["caf\u00e9.txt", "cafe\u0301.txt"],
        ["straße.md", "STRASSE.md"],
        ["a/b.txt", "A/b.txt"],
        ["Data/a.txt", "data/b.txt"],
        ["K.txt", "\u212a.txt"],
        ["x", "x/y"],
        ["X", "x/y/z"],
        ["a/b", "a/b/c.txt", "a/d"],
    ],
)
def test_files_that_a_disk_could_take_for_one_are_refused(tree: list[str]) -> None:
    for paths_ in (tree, tree[::-1]):
        with pytest.raises(Invalid, match="rename one"):
            check_tree(paths_)


def test_files_beside_each_other_pass() -> None:
    check_tree(["README.md", "a/README.md", "a/b.txt", "a/c/b.txt", "ab", "a.txt"])


def test_files_have_no_more_folders_than_a_commit_has_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "MOST_FILES", 3)
    check_tree(["a/b/c/d.txt", "a/b/e.txt"])
    with pytest.raises(TooLarge, match="too many folders: the limit is 3"):
        check_tree(["a/b/c/d/e.txt"])


def test_more_files_than_a_repository_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "MOST_FILES", 3)
    check_tree(["a", "b", "c"])
    with pytest.raises(TooLarge, match="the limit is 3"):
        check_tree(["a", "b", "c", "d"])
