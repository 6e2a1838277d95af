"""Whatever stands in a file from outside, kcard says what is wrong with it, as one of its own errors.

Derandomised, so that every run tries the same few. KCARD_TEST_EXAMPLES=5000 tries more, and others.
"""

import copy
import json
import os
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kcard.cards.card import REFERENCE
from kcard.cards.fingerprint import FINGERPRINT, Fingerprint, Probe, read_fingerprint
from kcard.cards.generators.external import ModelReference
from kcard.cards.passages import PASSAGES, hashes, passages
from kcard.cli.options import default_map
from kcard.config import settings as configured
from kcard.errors import CardError, KcardError, UsageError
from kcard.evaluation.questions import read_questions
from kcard.evaluation.records import EXAM, Distribution, Exam, ExamRun, Judged, Mean, read_exam
from kcard.integrators.batch_files import read_questions as read_batch
from kcard.llms.prompts import load as load_examples
from kcard.manifest import Base, Manifest, Training
from kcard.training.corpus import read_corpus
from kcard.training.readers.files import FORMATS, Document
from kcard.types import Source

MORE = int(os.environ.get("KCARD_TEST_EXAMPLES", "0"))
SLOW_FORMATS = {".pdf", ".xhtml", ".markdown", ".docx", ".parquet", ".tex", ".asciidoc", ".org"}


def fuzz(examples: int) -> Callable[[Any], Any]:
    return settings(
        derandomize=not MORE,
        max_examples=MORE or examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


SURROGATES = st.characters(categories=["Cs"])
TEXTS = st.one_of(
    st.text(max_size=20),
    st.text(SURROGATES, min_size=1, max_size=2),
    st.sampled_from(
        ["", "\0", "\n", "../../x", "/etc/passwd", "~", "\x1b[31m", "a" * 5000, "\u2028", "CON", "%s{}"]
    ),
)
NUMBERS = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([10**400, -(10**400), 2**63, -1, 0, 1e308]),
)
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)
JUNK = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
    VALUES.map(lambda value: json.dumps(value).encode()),
    st.sampled_from([b"*a ", b"<!--", b"<a ", b"[a](", b"![", b"`` ", b"_a", b"- ", b"| "]).map(
        lambda mark: mark * 20_000
    ),
    st.sampled_from(
        [b"", b"[" * 100_000, b'{"a":' * 50_000, b"9" * 5000, b"\xef\xbb\xbf{}", b"NaN", b"\x80\x04"]
    ),
)

MANIFEST_OF_A_CARD = Manifest(
    "rivers",
    "Rivers of Europe",
    "geography/rivers",
    "retrieval",
    knowledge_date="2026-01-01",
    base=Base("some/base", "main", "0" * 64),
    training=Training(command="train", hyperparameters={"epochs": 3}, libraries={"torch": "2.9"}),
    files={"README.md": "0" * 64},
)
MEAN = Mean(0.5, 0.4, 0.6)
SCORES = Distribution((0.5,), MEAN)
SITTING = ExamRun("held out", "0" * 64, 1, "0" * 64, MEAN, MEAN, MEAN, None, None, SCORES, SCORES)
JUDGED = Judged("q", "a", "t", True, 0.5, None, Source("s", "f", 1))
EXAMINED = Exam("rivers", "0.1", SITTING, SITTING, best=(JUDGED,), worst=(JUDGED,))
MEASURED = Fingerprint("float32", (Probe("q", "t", (1,), (2, 3), (-1.0, -2.0), (-1.5, -2.5)),))
PASSAGE = {"text": "The Rhine rises in the Alps.", "file": "rivers.md", "line": 3}


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value within a value."""
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from places(item, (*at, key))


@st.composite
def mutated(draw: st.DrawFn, text: str) -> str:
    """JSON text with up to two values in it replaced, removed, renamed or put deeper."""
    data = json.loads(text)
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.sampled_from(list(places(data))))
        data = _changed(copy.deepcopy(data), place, draw)
    return json.dumps(data)


def _changed(data: Any, place: tuple[Any, ...], draw: st.DrawFn) -> Any:
    if not place:
        return draw(VALUES)
    holder = data
    for key in place[:-1]:
        holder = holder[key]
    how = draw(st.sampled_from(["replace", "replace", "replace", "remove", "wrap", "rename"]))
    if how == "wrap":
        holder[place[-1]] = [holder[place[-1]]]
    elif how == "remove":
        del holder[place[-1]]
    elif how == "rename" and isinstance(holder, dict):
        holder[draw(TEXTS)] = holder.pop(place[-1])
    else:
        holder[place[-1]] = draw(VALUES)
    return data


def anything(text: str) -> st.SearchStrategy[bytes]:
    """What may stand in a file where `text` should: that text changed, or junk."""
    changed = mutated(text).map(lambda value: value.encode())
    cut = st.integers(0, len(text)).map(lambda size: text[:size].encode())
    return st.one_of(changed, changed, changed, cut, JUNK)


def settled(work: Callable[[], Any], expected: type[KcardError] = KcardError) -> Any:
    """What `work` returns, or None where it raises one of our errors, which says something."""
    try:
        return work()
    except KcardError as raised:
        error = raised
    assert isinstance(error, expected)
    assert str(error).strip()
    return None


def test_a_manifest_is_read_or_refused() -> None:
    text = MANIFEST_OF_A_CARD.to_json()
    shown: list[bool] = []

    @fuzz(60)
    @given(content=anything(text))
    @example(b'{"format": true, "name": "a", "description": "b"}')
    @example(b'{"format": 1, "name": "a", "description": 5}')
    @example(b'{"format": 1, "name": "a", "description": "b", "kind": []}')
    @example(b'{"format": 1, "name": "a", "description": "\\ud800"}')
    @example(b'{"format": 1, "name": "a", "description": "b", "files": {"../../x": "%s"}}' % (b"0" * 64))
    @example(b'{"format": 1, "name": "a", "description": "\\u001b[2Jb"}')
    def check(content: bytes) -> None:
        manifest = settled(lambda: Manifest.from_json(content.decode("utf-8", "replace")), CardError)
        shown.append(manifest is not None)
        if manifest is not None:
            assert Manifest.from_json(manifest.to_json()) == manifest
            assert all(not part.startswith("..") for path in manifest.files for part in path.split("/"))
            manifest.to_json().encode()

    check()
    assert not all(shown)


@pytest.mark.parametrize(
    ("name", "good", "read"),
    [
        (EXAM, EXAMINED.to_json(), read_exam),
        (FINGERPRINT, MEASURED.to_json(), read_fingerprint),
        (PASSAGES, json.dumps(PASSAGE), lambda folder: [*passages(folder)]),
        (PASSAGES, json.dumps({"sha256": "0" * 64, "file": "r", "line": 1}), hashes),
        (
            REFERENCE,
            '{"repository": "a/b", "revision": "c", "files": {"x": null}, "base": null}',
            ModelReference.read,
        ),
    ],
    ids=["exam", "fingerprint", "passages", "hashes", "reference"],
)
def test_a_file_of_a_card_is_read_or_refused(
    tmp_path: Path, name: str, good: str, read: Callable[[Path], Any]
) -> None:
    (tmp_path / name).write_text(good, encoding="utf-8")
    assert read(tmp_path)

    @fuzz(40)
    @given(content=anything(good))
    def check(content: bytes) -> None:
        (tmp_path / name).write_bytes(content)
        settled(lambda: read(tmp_path), CardError)

    check()


SETTINGS = """
llm = "embedded"
[ask]
n1 = 3
floor = 0.5
evidence = ["own"]
mode = "top-down"
[train]
epochs = 2.0
"""


@pytest.mark.parametrize("name", ["config.toml", "kcard.toml", "pyproject.toml"])
def test_a_config_file_is_read_or_refused(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    file = (home if name == "config.toml" else tmp_path) / name
    file.parent.mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path)
    good = (
        SETTINGS if name != "pyproject.toml" else "[tool.kcard]\n" + SETTINGS.replace("[", "[tool.kcard.", 2)
    )
    tomllib.loads(SETTINGS)
    lines = st.lists(
        st.sampled_from([*good.splitlines(), "n1 = '", "[[ask]]", "a.b.c = 1", "[ask", "ask = 1"]), max_size=8
    )
    broken = lines.map(lambda chosen: "\n".join(chosen).encode())
    nested = st.sampled_from(
        [b"llm = " + b"[" * 50_000, b"llm = " + b"9" * 5000, b"[tool]\nkcard = 1", b"llm = 1979-99-99"]
    )

    @fuzz(25)
    @given(content=st.one_of(broken, nested, JUNK))
    def check(content: bytes) -> None:
        file.write_bytes(content)
        settled(lambda: default_map(configured()), UsageError)

    check()


@pytest.mark.parametrize(
    ("suffix", "read"),
    [
        (".jsonl", read_questions),
        (".json", read_questions),
        (".csv", read_questions),
        (".jsonl", read_batch),
        (".jsonl", load_examples),
    ],
    ids=["exam.jsonl", "exam.json", "exam.csv", "batch", "examples"],
)
def test_a_file_of_questions_is_read_or_refused(
    tmp_path: Path, suffix: str, read: Callable[[Path], Any]
) -> None:
    file = tmp_path / f"questions{suffix}"
    good = json.dumps(
        {"question": "Who?", "answers": ["Ann"], "kind": "answer", "reply": "Ann", "knowledge": ["x"]}
    )

    @fuzz(30)
    @given(content=st.one_of(anything(good), anything(f'[{good}, {{"paragraphs": [{{"qas": [{good}]}}]}}]')))
    @example(b'{"question": "\\ud83d", "answer": "a"}')
    def check(content: bytes) -> None:
        file.write_bytes(content)
        result = settled(lambda: read(file), UsageError)
        if read is read_questions and result is not None:
            assert result.questions
            assert all(question.text and question.answers for question in result.questions)

    check()


ODD_LINES = [
    *(
        "The Rhine rises in the Alps.",
        "a,b,text",
        "Rhine\tmouth\tNorth Sea",
        "# head",
        "| a | b |",
        "```",
        "- item",
    ),
    *('"', "\t", "\x0c", "\r", "\x1b[31mred", "\U0001f600", "\u200f\u0645\u0631\u062d", "\u4f60\u597d\u3002"),
    *('{"text": "The Rhine."}', '{"text": "\\ud800"}', "x" * 3000),
]
LINES = st.lists(st.sampled_from(ODD_LINES), max_size=6).map(lambda chosen: "\n".join(chosen).encode())


@pytest.mark.parametrize("suffix", {format_.reader: suffix for suffix, format_ in FORMATS.items()}.values())
def test_a_corpus_is_read_or_refused(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"corpus{suffix}"

    @fuzz(8 if suffix in SLOW_FORMATS else 20)
    @given(content=st.one_of(LINES, JUNK))
    def check(content: bytes) -> None:
        file.write_bytes(content)
        # The reader itself raises nothing else, though the process in which it runs would catch it.
        settled(lambda: [*FORMATS[suffix].read(Document(file, file.name))])
        corpus = settled(lambda: read_corpus(file))
        if corpus is not None:
            assert all(text.encode().strip() for text in corpus.texts)

    check()
