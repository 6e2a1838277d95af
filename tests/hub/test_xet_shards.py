"""Shards say what they describe, or are refused."""

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcard.hub.refusals import Invalid
from kcard.hub.xet.shards import Segment, files, segments
from tests.hub.xet_packing import END, HEADER, described, raw_hash, shard

XORB = "0123456789abcdef" * 4
SHA256 = "fedcba9876543210" * 4


@pytest.mark.parametrize("flags", [1 << 30, 1 << 30 | 1 << 31])
def test_files_and_their_segments_are_found_with_and_without_what_is_skipped(flags: int) -> None:
    stream = io.BytesIO(
        shard(
            described(SHA256, (XORB, 10, 0, 2), (XORB, 5, 7, 8), flags=flags),
            described(XORB, (SHA256, 1, 0, 1), flags=flags),
        )
    )
    first, second = files(stream)
    assert (first.sha256, first.size, second.sha256, second.size) == (SHA256, 15, XORB, 1)
    assert list(segments(stream, first)) == [Segment(XORB, 0, 2, 10), Segment(XORB, 7, 8, 5)]
    assert list(segments(stream, second)) == [Segment(SHA256, 0, 1, 1)]


@pytest.mark.parametrize(
    "spoilt",
    [
        b"",
        b"x" + HEADER[1:] + END,
        HEADER[:32] + struct.pack("<QQ", 3, 0) + END,
        HEADER,
        shard(described(SHA256, (XORB, 10, 0, 2)))[:-60],
        shard(described(SHA256, (XORB, 10, 2, 2))),
        shard(described(SHA256, (XORB, 10, 0, 2), flags=0)),
        HEADER + raw_hash(XORB) + struct.pack("<IIQ", 1 << 30, 0xFFFFFFFF, 0) + bytes(480),
    ],
)
def test_a_spoilt_shard_is_refused(spoilt: bytes) -> None:
    with pytest.raises(Invalid):
        files(io.BytesIO(spoilt))


@given(st.binary(max_size=300))
def test_any_bytes_are_a_shard_or_refused(tail: bytes) -> None:
    try:
        found = files(io.BytesIO(HEADER + tail))
    except Invalid:
        return
    assert found == [] or len(tail) > 48
