"""Safetensors: a header must describe exactly the bytes that follow it."""

import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import safetensors
from hypothesis import given
from hypothesis import strategies as st

from kcard.hub.checks import content
from kcard.hub.checks.content import check_safetensors
from kcard.hub.errors import Invalid

BYTES = {"U8": 1, "BF16": 2, "F32": 4, "I64": 8}


def packed(header: Mapping[str, Any] | str, data: bytes = b"") -> bytes:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return len(text).to_bytes(8, "little") + text + data


def tensor(dtype: Any = "F32", shape: Any = (2, 2), offsets: Any = (0, 16)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


# What the format's own library makes of a file; it raises SafetensorError.
oracle: Callable[[bytes], object] = safetensors.deserialize


def check(file: bytes) -> None:
    check_safetensors("m.safetensors", len(file), io.BytesIO(file))


@st.composite
def files(draw: st.DrawFn) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}} if draw(st.booleans()) else {}
    place = 0
    for name in draw(st.lists(st.text(min_size=1, max_size=5), unique=True, max_size=4)):
        dtype = draw(st.sampled_from(list(BYTES)))
        shape = draw(st.lists(st.integers(0, 3), max_size=3))
        size = BYTES[dtype]
        for side in shape:
            size *= side
        header[name] = tensor(dtype, shape, (place, place + size))
        place += size
    return packed(header, bytes(place))


@given(files())
def test_whole_file_passes(file: bytes) -> None:
    check(file)


@given(files(), st.data())
def test_file_with_bytes_changed_passes_only_where_the_format_has_no_objection(
    file: bytes, data: st.DataObject
) -> None:
    changed = bytearray(file)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    try:
        check(bytes(changed))
    except Invalid:
        return
    oracle(bytes(changed))


@given(st.binary(max_size=200))
def test_noise_passes_only_where_the_format_has_no_objection(noise: bytes) -> None:
    try:
        check(noise)
    except Invalid:
        return
    oracle(noise)


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (b"", "header of 0 bytes"),
        (b"\xff" * 8, "header of 18446744073709551615 bytes"),
        ((100).to_bytes(8, "little") + b"{}", "header of 100 bytes in a file of 10"),
        (packed("[]"), "not a JSON object"),
        (packed("{ "), "invalid header"),
        (packed('{"a": NaN}'), "NaN"),
        (packed('{"a":' + "[" * 5000 + "]" * 5000 + "}"), "invalid header"),
        (packed('{"a":' + "9" * 5000 + "}"), "invalid header"),
        (packed({"a": tensor()}, bytes(15)), "have 16 bytes, but 15 follow"),
        (packed({"a": tensor()}, bytes(17)), "have 16 bytes, but 17 follow"),
        (packed({"a": tensor(offsets=(1, 17))}, bytes(17)), "gap"),
        (packed({"a": tensor(), "b": tensor(offsets=(8, 24))}, bytes(24)), "overlap"),
        (packed({"a": tensor(), "b": tensor(offsets=(20, 36))}, bytes(36)), "gap"),
        (packed({"a": tensor(shape=(2, 3))}, bytes(16)), "is not 16 bytes"),
        (packed({"a": tensor(shape=(1 << 32, 1 << 32), offsets=(0, 0))}), "is not 0 bytes"),
        (packed({"a": tensor(shape=(1 << 62, 4), offsets=(0, 0))}), "is not 0 bytes"),
        (packed({"a": tensor(shape=(1 << 64,), offsets=(0, 0))}), "shape must be"),
        (packed({"a": tensor(shape=(-2, -2))}, bytes(16)), "shape must be"),
        (packed({"a": tensor(shape=(True, 4))}, bytes(16)), "shape must be"),
        (packed({"a": tensor(shape=(2.0, 2.0))}, bytes(16)), "shape must be"),
        (packed({"a": tensor(shape=[1] * 17, offsets=(0, 4))}, bytes(4)), "at most 16"),
        (packed({"a": tensor(offsets=(16, 0))}, bytes(16)), "is not -16 bytes"),
        (packed({"a": tensor(offsets=(0, 8, 16))}, bytes(16)), "must be two"),
        (packed({"a": tensor("object")}, bytes(16)), "unknown dtype"),
        (packed({"a": tensor(["F32"])}, bytes(16)), "unknown dtype"),
        (packed({"a": {**tensor(), "code": "x"}}, bytes(16)), "only"),
        (packed({"a": 1}), "invalid name or description"),
        (packed({"__metadata__": {"a": 1}}), "not an object of strings"),
        (packed('{"a": %s, "a": %s}' % ((json.dumps(tensor()),) * 2), bytes(16)), "duplicate key"),
        (packed('{"__metadata__": {"a": "1", "a": "2"}}'), "duplicate key"),
        (packed({"x" * 1025: tensor()}, bytes(16)), "invalid name or description"),
        (packed({"a": tensor(shape=[1] * 1_000_002)}), "too many dimensions"),
    ],
)
def test_header_that_does_not_fit_its_bytes_is_refused(file: bytes, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        check(file)


def test_header_and_number_of_tensors_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    two = packed({"a": tensor("U8", [], (0, 1)), "b": tensor("U8", [], (1, 2))}, b"xy")
    check(two)
    monkeypatch.setattr(content, "MOST_TENSORS", 1)
    with pytest.raises(Invalid, match="more than 1 tensors"):
        check(two)
    monkeypatch.setattr(content, "LARGEST_HEADER", 20)
    with pytest.raises(Invalid, match="header of"):
        check(two)


def test_only_the_header_is_read() -> None:
    class Counted(io.BytesIO):
        got = 0

        def read(self, size: int | None = -1, /) -> bytes:
            data = super().read(size)
            self.got += len(data)
            return data

    file = packed({"a": tensor("U8", [1 << 20], (0, 1 << 20))}, bytes(1 << 20))
    stream = Counted(file)
    check_safetensors("m.safetensors", len(file), stream)
    assert stream.got == len(file) - (1 << 20)


@pytest.mark.parametrize(
    "text",
    [
        r'{"\ud800": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}',
        r'{"__metadata__": {"note": "\udc00"}}',
        r'{"__metadata__": {"note": "\u12"}}',
    ],
)
def test_a_header_with_a_bad_escape_is_refused_as_the_format_s_library_does(text: str) -> None:
    file = packed(text)
    with pytest.raises(safetensors.SafetensorError):
        oracle(file)
    with pytest.raises(Invalid, match="invalid header"):
        check(file)
