"""Chunks unpack to what was packed, and to nothing else, whatever their headers say."""

import io
import resource
import sys

import lz4.frame  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcard.hub.refusals import Invalid
from kcard.hub.xet.chunks import LONGEST_CHUNK, chunks, unpack
from tests.hub.xet_packing import named, packed


@given(st.binary(min_size=1, max_size=70), st.sampled_from([0, 1, 2]))
def test_a_chunk_unpacks_to_the_bytes_that_were_packed(data: bytes, scheme: int) -> None:
    assert unpack(packed(data, scheme)) == data


def test_chunks_come_one_by_one_up_to_the_footer() -> None:
    stream = io.BytesIO(
        packed(b"one") + packed(b"two" * 99, 1) + b"XETBLOB\0and whatever stands in the footer"
    )
    assert [chunk.data for chunk in chunks(stream)] == [b"one", b"two" * 99]


@given(st.binary(max_size=64))
def test_any_bytes_are_chunks_or_refused(data: bytes) -> None:
    try:
        found = list(chunks(io.BytesIO(data)))
    except Invalid:
        return
    assert all(0 < len(chunk.data) <= LONGEST_CHUNK for chunk in found)


@pytest.mark.parametrize(
    "spoilt",
    [
        b"\1" + packed(b"version")[1:],
        packed(b"scheme")[:4] + b"\3" + packed(b"scheme")[5:],
        packed(b"cut off")[:-1],
        packed(b"cut off in its header")[:5],
        packed(b"longer than it says", 1, length=3),
        packed(b"shorter than it says", 1, length=300),
        packed(b"", length=0),
        packed(bytes(LONGEST_CHUNK + 1)),
        packed(b"not LZ4")[:4] + b"\1" + packed(b"not LZ4")[5:],
    ],
)
def test_a_spoilt_chunk_is_refused(spoilt: bytes) -> None:
    with pytest.raises(Invalid):
        list(chunks(io.BytesIO(spoilt)))


@pytest.mark.skipif(sys.platform == "win32", reason="no such measure of memory there")
def test_a_bomb_is_not_unpacked() -> None:
    bomb = lz4.frame.compress(bytes(60 << 20))[: 2 * LONGEST_CHUNK]
    header = bytes([0]) + len(bomb).to_bytes(3, "little") + bytes([1]) + LONGEST_CHUNK.to_bytes(3, "little")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(Invalid, match="does not unpack"):
        unpack(header + bomb)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10


def test_the_name_of_a_xorb_depends_on_every_chunk_and_their_order() -> None:
    several = [bytes([number]) * 9 for number in range(40)]
    names = {named(several), named(several[::-1]), named(several[:-1]), named([b"".join(several)])}
    assert len(names) == 4
    assert all(len(name) == 64 for name in names)
