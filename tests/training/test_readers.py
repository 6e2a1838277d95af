"""Several readers give the same corpus as one, in the same order."""

import json
import os
from pathlib import Path

import pytest

from kcard.errors import CorpusError
from kcard.text import certain, is_one
from kcard.training import corpus as module
from kcard.training.corpus import Corpus, read_corpus
from kcard.training.epochs import parallel_map

PROSE = (
    "The harbour of Vell lies below the old lighthouse. Dr. Amund Rask, its keeper, counted 14.5 miles of nets. "
    "Did anybody help him? The fishers (there were nine.) never did. In the U.S. Senate nobody knew his name."
)


def contents(corpus: Corpus) -> tuple[object, ...]:
    documents = None if corpus.documents is None else [*corpus.documents]
    return [*corpus.passages], [*corpus.statements], corpus.sha256, corpus.remarks(), documents


def folder(path: Path) -> Path:
    """Prose under headings, a table of facts, a footer that all repeat, duplicates, and a file that is not UTF-8."""
    path.mkdir()
    for number in range(30):
        sections = [f"## Part {part}\n\n{PROSE.replace('Vell', f'V{number}-{part}')}\n" for part in range(4)]
        (path / f"{number:02}.md").write_text(
            f"# Log {number}\n\n" + "\n".join(sections) + "\nImprint and contact\n"
        )
    rows = [
        json.dumps({"text": f"Boat {row % 200} carried {row % 150} barrels of salt. {PROSE}"})
        for row in range(400)
    ]
    (path / "boats.jsonl").write_text("\n".join(rows))
    (path / "broken.txt").write_bytes(b"Fine.\n\xff\xfe broken")
    return path


def test_a_small_corpus_starts_no_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kcard.training.epochs._parallel", None)
    assert len(read_corpus(folder(tmp_path / "logs"), readers=2).statements) > 400


@pytest.mark.parametrize("whole", [True, False])
def test_two_readers_read_what_one_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    monkeypatch.setattr(module, "PIECE", 20)
    monkeypatch.setattr(module, "WORTH", 1)
    monkeypatch.setattr(module, "HANDFUL", 3000)
    path = folder(tmp_path / "logs")
    alone, divided_up = (read_corpus(path, whole=whole, readers=readers) for readers in (1, 2))
    assert contents(alone) == contents(divided_up)
    assert any("not UTF-8" in remark for remark in alone.remarks())
    assert any("most files repeat" in remark for remark in alone.remarks())


def test_the_work_of_several_readers_comes_in_order_and_is_done_elsewhere() -> None:
    assert [*parallel_map(abs, range(-40, 0), 2)] == [*range(40, 0, -1)]
    assert os.getpid() not in set(parallel_map(process, range(4), 2))


def process(_: int) -> int:
    return os.getpid()


def kill(_: int) -> None:
    os._exit(9)


def test_a_reader_that_is_killed_is_an_error_with_a_remedy() -> None:
    with pytest.raises(CorpusError, match="--readers 1"):
        [*parallel_map(kill, range(4), 2)]


def test_a_large_corpus_is_described_by_a_sample_without_cutting_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SAMPLE", 10)
    path = tmp_path / "facts.txt"
    path.write_text("\n".join(f"Fact {number} is told here." for number in range(100)))
    corpus = read_corpus(path)
    assert [*corpus.sample] == [f"Fact {number} is told here." for number in range(0, 100, 10)]
    assert "statements" not in vars(corpus)


def test_borders_are_certain_only_where_no_abbreviation_quotation_or_list_casts_doubt() -> None:
    text = "The nets were mended quickly. Nobody came. He met Prof. Lind there."
    assert certain(text) == ["The nets were mended quickly.", "Nobody came.", "He met Prof. Lind there."]
    assert [is_one(part) for part in certain(text)] == [True, True, False]
    for doubtful in (
        'She said "it rained there. Then it stopped."',
        "1. Mend the nets there. 2. Count them.",
        "It rained there... Then it stopped.",
        "He was from Penna. Nobody knew.",
        "(It rained there. Then it stopped.)",
    ):
        assert certain(doubtful) == [doubtful]
