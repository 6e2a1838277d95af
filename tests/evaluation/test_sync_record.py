"""sync.json is read back as it was written, as its first version has it too, and a damaged one is named."""

import json
from pathlib import Path

import pytest

from kcard.errors import CardError
from kcard.evaluation.retention import SYNC, SyncRecord, read_sync

RECORD = SyncRecord("2026-11-23T10:00:00+00:00", "ab", "continued", "", 1, 0, 0, 0, 2.5, first=0.97)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_sync(tmp_path) is None
    RECORD.write(tmp_path)
    assert read_sync(tmp_path) == RECORD


def test_the_first_records_called_it_best(tmp_path: Path) -> None:
    RECORD.write(tmp_path)
    row = json.loads((tmp_path / SYNC).read_text(encoding="utf-8"))
    row["best"] = row.pop("first")
    (tmp_path / SYNC).write_text(json.dumps(row), encoding="utf-8")
    assert read_sync(tmp_path) == RECORD


@pytest.mark.parametrize("text", ["", "[]", "{", '{"way": "continued"}', '{"unknown": 1}', "3"])
def test_a_damaged_record_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / SYNC).write_text(text, encoding="utf-8")
    with pytest.raises(
        CardError, match=r"sync\.json can't be read: .*delete it, and sync the card with --retrain"
    ):
        read_sync(tmp_path)
