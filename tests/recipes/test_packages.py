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


def test_a_list_of_manuals_is_read_by_name_and_their_files_are_those_of_the_patterns_in_order(
    tmp_path: Path, packages: Path
) -> None:
    by_name = listed(tmp_path)
    assert [*by_name] == ["depot", "tower"]
    assert by_name["tower"] == Manual("tower", "npm", "tower", "2.0.0", ("package/README.md",), held=True)
    assert not by_name["depot"].held
    assert [path.name for path in by_name["depot"].listed(packages)] == ["bad.md", "keys.md", "index.html"]
    with pytest.raises(SystemExit, match=r"holds none of package/README\.md: fetch the package"):
        by_name["tower"].listed(tmp_path)


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


def test_the_help_of_a_command_is_fetched_as_a_file(tmp_path: Path) -> None:
    manual = Manual("depot", "help", "python -c print('--keep')", "1.0", ("*.txt",))
    fetch(manual, tmp_path / "packages")
    [path] = manual.listed(tmp_path / "packages")
    assert (path.name, path.read_text()) == ("depot.txt", "--keep\n")


def test_every_manual_that_is_listed_names_its_package_and_none_is_learned_from_and_measured() -> None:
    root = Path(__file__).parents[2]
    packages = []
    for folder in ("recipes/reader/questions", "benchmarks/manuals"):
        by_name = manuals(root / folder / "manuals.toml")
        assert by_name
        for manual in by_name.values():
            assert manual.registry in ("debian", "npm", "help")
            assert manual.version
            assert manual.files
            assert not any(pattern.startswith("/") for pattern in manual.files)
        packages.append({manual.package for manual in by_name.values()})
    assert packages[0].isdisjoint(packages[1])
