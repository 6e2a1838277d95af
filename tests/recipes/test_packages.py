"""Manuals of packages: how they are listed, and what is read of an unpacked one."""

from pathlib import Path

import pytest
from recipes.packages import Manual, fetch, manuals, read

LISTED = """
[depot]
registry = "debian"
package = "depot-doc"
version = "1.0-1"
files = ["usr/share/doc/depot/*.html", "usr/share/doc/depot/guide/**/*.md"]

[tower]
registry = "npm"
package = "tower"
version = "2.0.0"
files = ["package/README.md"]
held = true
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    doc = tmp_path / "depot-doc/usr/share/doc/depot"
    (doc / "guide/more").mkdir(parents=True)
    (doc / "index.html").write_text("<html><body><h1>Depot</h1><p>It sorts letters.</p></body></html>")
    (doc / "guide/more/keys.md").write_text("# Keys\n\nAda keeps them.\n")
    (doc / "guide/bad.md").write_bytes(b"caf\xe9\n")
    (doc / "copyright").write_text("Nobody's.")
    return tmp_path


def listed(tmp_path: Path) -> dict[str, Manual]:
    path = tmp_path / "manuals.toml"
    path.write_text(LISTED, encoding="utf-8")
    return manuals(path)


def test_a_list_of_manuals_is_read_by_name(tmp_path: Path) -> None:
    by_name = listed(tmp_path)
    assert [*by_name] == ["depot", "tower"]
    assert by_name["tower"] == Manual("tower", "npm", "tower", "2.0.0", ("package/README.md",), held=True)
    assert not by_name["depot"].held


def test_its_files_are_those_of_the_patterns_in_order(tmp_path: Path, packages: Path) -> None:
    names = [path.name for path in listed(tmp_path)["depot"].listed(packages)]
    assert names == ["bad.md", "keys.md", "index.html"]


def test_what_can_not_be_read_is_left_out_and_said(
    tmp_path: Path, packages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [*read(listed(tmp_path)["depot"], packages)]
    assert [(p.section, p.text) for p in texts] == [
        ("Keys", "Ada keeps them."),
        ("Depot", "It sorts letters."),
    ]
    assert texts[1].file == "usr/share/doc/depot/index.html"
    assert "bad.md is left out" in capsys.readouterr().out


def test_a_package_that_is_there_is_not_fetched_again(tmp_path: Path, packages: Path) -> None:
    before = sorted(packages.rglob("*"))
    fetch(listed(tmp_path)["depot"], packages)
    assert sorted(packages.rglob("*")) == sorted([*before, tmp_path / "manuals.toml"])


def test_a_package_without_its_files_says_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"holds none of package/README\.md: fetch the package"):
        listed(tmp_path)["tower"].listed(tmp_path)


@pytest.mark.parametrize("folder", ["recipes/reader/questions", "benchmarks/manuals"])
def test_every_manual_that_is_listed_names_its_package_and_files(folder: str) -> None:
    by_name = manuals(Path(__file__).parents[2] / folder / "manuals.toml")
    assert by_name
    for manual in by_name.values():
        assert manual.registry in ("debian", "npm")
        assert manual.version
        assert manual.files
        assert not any(pattern.startswith("/") for pattern in manual.files)


def test_no_manual_of_the_benchmark_is_one_that_the_reader_learns_from() -> None:
    root = Path(__file__).parents[2]
    learned, measured = (
        {manual.package for manual in manuals(root / folder / "manuals.toml").values()}
        for folder in ("recipes/reader/questions", "benchmarks/manuals")
    )
    assert not learned & measured
