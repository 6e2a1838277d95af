"""The lines of a commit: whatever comes, they are values or a refusal."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcard.hub.errors import Invalid, Refused, TooLarge
from kcard.hub.server.routes import commit
from kcard.hub.server.routes.commit import Header, Inline, Large, Line, read_lines
from kcard.hub.values import Delete, DeleteFolder

HEADER = {"key": "header", "value": {"summary": "Title", "description": "More", "parentCommit": "a" * 40}}
FILE = {"key": "file", "value": {"path": "a", "content": "AQI=", "encoding": "base64"}}


def parsed(*values: object, largest: int = 1_000) -> list[Line]:
    text = b"".join(json.dumps(value).encode() + b"\n" for value in values)
    return list(read_lines(io.BytesIO(text), largest))


def test_every_kind_of_line_becomes_a_value() -> None:
    sha256 = "0" * 64
    values = parsed(
        HEADER,
        FILE,
        {"key": "file", "value": {"path": "b", "content": "ä"}},
        {"key": "lfsFile", "value": {"path": "c", "algo": "sha256", "oid": sha256, "size": 5}},
        {"key": "lfsFile", "value": {"path": "d", "oid": sha256}},
        {"key": "deletedFile", "value": {"path": "e"}},
        {"key": "deletedFolder", "value": {"path": "f/"}},
    )
    assert values == [
        Header("Title", "More", "a" * 40),
        Inline("a", b"\1\2"),
        Inline("b", "ä".encode()),
        Large("c", sha256, 5),
        Large("d", sha256, None),
        Delete("e"),
        DeleteFolder("f"),
    ]


def test_the_last_line_needs_no_end() -> None:
    assert len(list(read_lines(io.BytesIO(json.dumps(HEADER).encode()), 10))) == 1


def test_lines_are_read_one_at_a_time_and_no_longer_than_allowed() -> None:
    class Endless(io.BytesIO):
        taken = 0

        def readline(self, size: int | None = -1, /) -> bytes:
            assert size is not None
            assert size > 0
            self.taken += size
            return b" " * size

    stream = Endless()
    with pytest.raises(TooLarge):
        list(read_lines(stream, 1_000))
    assert stream.taken < 20_000


def test_a_file_of_the_largest_size_passes_and_one_byte_more_does_not() -> None:
    def file(size: int) -> dict[str, object]:
        return {"key": "file", "value": {"path": "a", "content": "a" * size}}

    assert len(parsed(HEADER, file(1_000))) == 2
    with pytest.raises(TooLarge, match="1000 bytes"):
        parsed(HEADER, file(1_001))


def test_there_are_not_too_many_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "MOST_LINES", 3)
    assert len(parsed(HEADER, FILE, FILE, FILE)) == 4
    with pytest.raises(TooLarge):
        parsed(HEADER, FILE, FILE, FILE, FILE)


@pytest.mark.parametrize("size", [-1, 1.5, "5", True, [], {}])
def test_a_size_is_a_number_of_bytes(size: object) -> None:
    with pytest.raises(Invalid):
        parsed(HEADER, {"key": "lfsFile", "value": {"path": "c", "oid": "0" * 64, "size": size}})


@pytest.mark.parametrize("oid", ["", "0" * 63, "0" * 65, "G" * 64, "A" * 64, "0" * 64 + "\n", 7, None])
def test_an_oid_is_a_sha256(oid: object) -> None:
    with pytest.raises(Invalid):
        parsed(HEADER, {"key": "lfsFile", "value": {"path": "c", "oid": oid, "size": 1}})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["header", "file", "lfsFile", "deletedFile", "deletedFolder", "other"])
FIELDS = st.sampled_from(["path", "content", "encoding", "oid", "algo", "size", "summary", "parentCommit"])
ODD = st.fixed_dictionaries({"key": KEYS | JSON, "value": st.dictionaries(FIELDS, JSON) | JSON})


@given(st.lists(ODD, max_size=4))
def test_odd_lines_are_refused_and_break_nothing(lines: list[object]) -> None:
    try:
        parsed(HEADER, *lines)
    except Refused:
        return


@given(st.binary(max_size=300))
def test_noise_is_refused_and_breaks_nothing(noise: bytes) -> None:
    with pytest.raises(Refused):
        list(read_lines(io.BytesIO(noise), 100))
