"""A card's paths and metadata, the tags derived from it; its README as HTML that is safe to show."""

import json
import time
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcard.hub.checks import paths as paths_module
from kcard.hub.checks.metadata import derive_tags, find_library, parse_readme
from kcard.hub.checks.paths import check_path, check_tree, fold_path
from kcard.hub.checks.rendering import render_readme
from kcard.hub.errors import Dangerous, Invalid, TooLarge
from kcard.manifest import Manifest

FILES = "/ada/moons/resolve/main"


def card(front: str) -> dict[str, Any]:
    return parse_readme(f"---\n{front}\n---\nbody")[0]


def test_metadata_and_text_are_told_apart() -> None:
    assert parse_readme("---\nlicense: mit\n---\n# Hi\n---\n") == ({"license": "mit"}, "# Hi\n---\n")
    assert parse_readme("\ufeff---\r\na: 1\r\n---\r\nx") == ({"a": 1}, "x")
    assert parse_readme("---\n---\nx") == ({}, "x")
    assert parse_readme("---\n# only a comment\n---\nx") == ({}, "x")
    for plain in ("", "# Hi", "---\nno end", "\n---\na: 1\n---\n", "----\na: 1\n---\n"):
        assert parse_readme(plain) == ({}, plain)


def test_metadata_is_what_json_can_hold() -> None:
    metadata = card(
        "date: 2024-01-02\nat: 2024-01-02T03:04:05Z\nn: .nan\ni: -.inf\n1: x\nfalse: y\nl: [1, 2.5, null]"
    )
    expected = {"date": "2024-01-02", "at": "2024-01-02T03:04:05+00:00", "n": "nan", "i": "-inf"}
    assert metadata == {**expected, "1": "x", "False": "y", "l": [1, 2.5, None]}
    assert json.loads(json.dumps(metadata, allow_nan=False)) == metadata


@pytest.mark.parametrize(
    ("front", "error", "why"),
    [
        ("a: &x [1]\nb: *x", Dangerous, "anchors"),
        ("a: &lol [" + "lol," * 10 + "]\n" + "\n".join(f"{c}: [*a,*a]" for c in "bcd"), Dangerous, "anchors"),
        ("a: !!python/object/apply:os.system ['ls']", Dangerous, "tag"),
        ("a: !!binary aGk=", Dangerous, "tag"),
        ("a: !local x", Dangerous, "tag"),
        ("a: !!set {x}", Dangerous, "tag"),
        ("a: 1\na: 2", Invalid, "duplicate key"),
        ("a:\n  b: 1\n  b: 2", Invalid, "duplicate key"),
        ("? [a, b]\n: 1", Invalid, "must be strings"),
        ("a: [", Invalid, "invalid YAML"),
        ("a: " + "[" * 40 + "]" * 40, Invalid, "32 levels"),
        ("a: " + "[" * 100_000, Invalid, "32 levels"),
        ("a: " + "9" * 200, Invalid, "200 digits"),
        ("a: " + "1:" * 50_000 + "1", Invalid, "digits"),
        ("a: 0x" + "f" * 200, Invalid, "digits"),
        ('a: "\\ud800"', Invalid, "invalid YAML"),
        ("just text", Invalid, "key: value"),
        ("[1, 2]", Invalid, "key: value"),
        ("a: 2024-99-99", Invalid, "invalid YAML"),
        ("a: " + "x" * (513 << 10), TooLarge, "the limit is"),
    ],
)
def test_front_matter_that_is_a_bomb_or_unclear_is_refused(
    front: str, error: type[Exception], why: str
) -> None:
    begun = time.process_time()
    with pytest.raises(error, match=why):
        card(front)
    assert time.process_time() - begun < 5


@given(st.text(alphabet="ab:- \n[]{}&*!|>'\"#%@`,?01.~\t", max_size=80))
def test_noise_in_front_matter_raises_nothing_else(front: str) -> None:
    try:
        metadata, _ = parse_readme(f"---\n{front}\n---\n")
    except (Invalid, TooLarge):
        return
    json.dumps(metadata, allow_nan=False).encode()


def test_tags_are_derived_as_on_the_hugging_face_hub() -> None:
    metadata = card(
        "library_name: peft\npipeline_tag: text-generation\nlicense: Apache-2.0\nlanguage: [en, no]\n"
        "datasets: [squad, ada/moons]\nbase_model: org/base\ntags: [astronomy, peft, 7]"
    )
    paths = ["README.md", "adapter_config.json", "adapter_model.safetensors"]
    assert derive_tags(metadata, paths) == (
        *("peft", "safetensors", "text-generation", "astronomy", "7", "en", "no", "dataset:squad"),
        *("dataset:ada/moons", "base_model:org/base", "base_model:adapter:org/base", "license:apache-2.0"),
    )


@pytest.mark.parametrize(
    ("front", "paths", "tag"),
    [
        ("base_model: a/b", ["config.json"], "base_model:finetune:a/b"),
        ("base_model: [a/b, c/d]", [], "base_model:merge:c/d"),
        ("base_model: a/b", ["adapter_config.json"], "base_model:adapter:a/b"),
        ("base_model: a/b\nlibrary_name: peft", [], "base_model:adapter:a/b"),
        (
            "base_model: a/b\nbase_model_relation: quantized",
            ["adapter_config.json"],
            "base_model:quantized:a/b",
        ),
        ("base_model: a/b\nbase_model_relation: bogus", [], "base_model:finetune:a/b"),
        ("language: no", [], "no"),
        ("{}", ["config.json", "model.safetensors"], "transformers"),
        ("{}", ["modules.json", "model.safetensors"], "sentence-transformers"),
    ],
)
def test_relation_and_library_follow_from_card_and_files(front: str, paths: list[str], tag: str) -> None:
    assert tag in derive_tags(card(front), paths)


def test_tags_of_a_knowledge_card_name_its_kind_and_every_domain_above() -> None:
    manifest = Manifest(name="moons", description="x", kind="both", method="lora", domain="science/astronomy")
    expected = ("kcard", "kcard:kind:both", "kcard:method:lora", "domain:science", "domain:science/astronomy")
    assert derive_tags({}, ["kcard.json"], manifest) == expected
    assert not any(tag.startswith(("kcard", "domain")) for tag in derive_tags({}, ["kcard.json"]))


def test_what_is_no_tag_is_left_out() -> None:
    odd = {
        "tags": ["ok", "", " ", "a\nb", "x" * 201, None, {"a": 1}, ["b"]],
        "license": {"a": 1},
        "language": None,
    }
    assert derive_tags(odd, []) == ("ok",)
    assert derive_tags({"tags": "one"}, []) == ("one",)
    assert len(derive_tags({"tags": [f"t{i}" for i in range(1000)]}, [])) == 500
    assert find_library({"library_name": ["a"]}, []) is None


def test_markdown_becomes_html() -> None:
    html = render_readme(
        "# Hi\n\n| a | b |\n|--|:-:|\n| 1 | ~~2~~ |\n\n<details><summary>s</summary>*x*</details>\n\n```py\n<b>\n```"
    )
    for part in ("<h1>Hi</h1>", "<td>1</td>", "<s>2</s>", "<summary>s</summary>", "&lt;b&gt;"):
        assert part in html


@pytest.mark.parametrize(
    "attack",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[x](javascript:alert(1))",
        "<svg onload=alert(1)>",
        "<a href=' java&#10;script:alert(1)'>x</a>",
        "<iframe src=//evil.example></iframe>",
        "<style>*{}</style>",
        "<form action=//evil.example><input></form>",
        "<base href=//evil.example>",
        "<p style='color:red'>x</p>",
        "<meta http-equiv=refresh content=0>",
        "<link rel=stylesheet href=//evil.example>",
        "<p id=x class=y>x</p>",
        "[x](data:text/html,<script>alert(1)</script>)",
        "<math><mi xlink:href='javascript:x'>",
        "[x](vbscript:x)",
        "<a href=//evil.example/x>x</a>",
        "[x](//evil.example)",
        "[x](/\\evil.example)",
        "<video src=x onerror=x>",
        "![x](https://evil.example/pixel.png)",
        "![x](//evil.example/p.png)",
        "![x](data:image/svg+xml,x)",
        "<img srcset='https://evil.example/p.png 1x'>",
        "![x](\\\\evil.example\\p.png)",
        "![x](http:evil.example)",
        "<img src='https&#58;//evil.example/'>",
        "<input type=image src=//evil.example>",
        "![x](htTPS://evil.example)",
    ],
)
def test_attacks_in_a_readme_come_to_nothing(attack: str) -> None:
    html = render_readme(attack, FILES).lower()
    shown = html.replace("&lt;", "")
    for tag in ("script", "iframe", "svg", "style", "form", "input", "base", "meta", "link", "math", "video"):
        assert f"<{tag}" not in shown
    for value in ("javascript", "data:", "vbscript", "//", "http"):
        assert f'="{value}' not in html
    for bad in ("srcset=", " onerror=", "style=", "id=", "class="):
        assert bad not in html


def test_pictures_and_links_of_the_repository_are_found_and_links_elsewhere_stay() -> None:
    html = render_readme(
        "![m](img/m.png) ![u](../../../api/x) [d](docs/a.md#b) [top](#hi) [out](https://example.org/x)", FILES
    )
    for part in (
        f'src="{FILES}/img/m.png"',
        f'src="{FILES}/api/x"',
        f'href="{FILES}/docs/a.md#b"',
        'href="#hi"',
        'href="https://example.org/x" rel="nofollow noopener noreferrer"',
    ):
        assert part in html


def test_long_readme_is_cut_and_says_so() -> None:
    assert f'continues in <a href="{FILES}/README.md"' in render_readme("long line\n\n" * 10_000, FILES)
    assert "The text continues" not in render_readme("long line\n\n" * 1000)


@pytest.mark.parametrize(
    "bomb",
    [
        "<div>" * 300_000,
        "[" * 300_000,
        "![a](" * 100_000,
        "> " * 100_000,
        "*a _b " * 100_000,
        "<!--" * 100_000,
        "<b><p>" * 1400,
        "<table><td>" * 100_000,
        "|" * 4000 + "\n" + "|-" * 4000 + "\n" + "|a\n" * 4000,
    ],
)
def test_readme_that_is_a_bomb_is_shown_in_seconds(bomb: str) -> None:
    begun = time.process_time()
    render_readme(bomb, FILES)
    assert time.process_time() - begun < 8


@given(st.text(alphabet="<>/\"'=&;abimgsrcohef! ()[]:\\*_`\n#|-", max_size=120))
def test_noise_never_gives_an_address_that_is_not_ours_or_plain(text: str) -> None:
    html = render_readme(text, FILES)
    for piece in html.split('src="')[1:]:
        assert piece.startswith((FILES, '"'))


# Paths in a repository: what could be another place, file or device for some client is refused.


@pytest.mark.parametrize(
    "path",
    [
        *("README.md", ".gitattributes", ".eval_results/a.yaml", "data/train-00000-of-00001.parquet"),
        *("a/b/c/d.json", "Über uns.md", "日本語/説明.md", "..a.json", "a..b", "console.txt", "common.txt"),
        *("git/x.txt", ".github/x.md"),
    ],
)
def test_plain_path_is_itself(path: str) -> None:
    assert check_path(path) == path


UNSAFE_PATHS = (
    *("", "/etc/passwd", "../up.txt", "a/../../b", "a/./b", ".", "..", "...", "a//b", "a/"),
    *("a\\b", "..\\up", "C:\\x", "c:x", "a:stream", 'a"b', "a<b", "a|b", "a?b", "a*b"),
    *("nul\0l", "a\nb", "a\tb", "a\x7fb", "a\x85b", "a\u2028b", "half\ud800", "\ue000", "a\u202egnp.txt"),
    *(".git/config", "a/.GIT/hooks/x", ".Git", "．git/x", ".g\u200cit/config", "git~1/x", "GIT~1", ".git "),
    *("a.", "a ", " a", "a./b", "zero\u200bwidth", "x" * 256, "é" * 128),
    *("con", "CON.txt", "a/nul", "aux.json", "COM1.md", "lpt9", "com¹.txt", "con .txt", "conin$"),
)


@pytest.mark.parametrize("path", UNSAFE_PATHS)
def test_path_that_is_something_else_somewhere_is_refused(path: str) -> None:
    with pytest.raises(Dangerous, match="unsafe path"):
        check_path(path)


def test_long_and_deep_paths_are_refused() -> None:
    check_path("/".join(["x" * 255] * 4))
    check_path("/".join(["x"] * 32))
    for names, limit in (
        (["x" * 255] * 5, "1024 bytes"),
        (["é" * 120] * 5, "1024 bytes"),
        (["x"] * 33, "32"),
    ):
        with pytest.raises(Invalid, match=f"the limit is {limit}"):
            check_path("/".join(names))


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


def test_a_repository_holds_so_many_files_and_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths_module, "MAX_FILES", 3)
    check_tree(["a/README.md", "a/b/c.txt", "ab"])
    with pytest.raises(TooLarge, match="too many folders: the limit is 3"):
        check_tree(["a/b/c/d/e.txt"])
    with pytest.raises(TooLarge, match="too many files: the limit is 3"):
        check_tree(["a", "b", "c", "d"])
