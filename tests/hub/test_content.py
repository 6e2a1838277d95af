"""Files by name and content: tensors, text and pictures are stored; what can run code or hide something is not."""

import io
import json
import pickle
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from hypothesis import given
from hypothesis import strategies as st

from kcard.hub.checks.content import check_file
from kcard.hub.checks.formats import check_gguf, kind_of
from kcard.hub.checks.tensors import check_safetensors
from kcard.hub.errors import Dangerous, Invalid, TooLarge
from kcard.index import Index
from tests.llms.gguf_files import gguf_with_tensor, text

MODEL = Path(__file__).resolve().parents[2] / "src/kcard/embedded/weights/base"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


class Shout:
    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return print, ("gotcha",)


def check(path: str, content: bytes) -> None:
    check_file(path, len(content), lambda: io.BytesIO(content))


def zipped(name: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, b"x")
    return buffer.getvalue()


def saved(array: object) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array), allow_pickle=True)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("README.md", b"---\nlicense: mit\n---\n# Hello"),
        ("README.md", b""),
        ("LICENSE", b"MIT"),
        ("NOTICE", b"x"),
        ("LICENSE.txt", b"MIT"),
        (".gitattributes", b"*.safetensors filter=lfs"),
        ("config.json", b'{"model_type": "llama"}'),
        ("vocab.json", b'{"auto_map": 12, "\\u0120auto_map" : 13, "a": 14}'),
        ("passages.jsonl", b'{"text": "a"}\n{"text": "b [[[[ {{{{"}\n'),
        ("chat_template.jinja", b"{{ messages }}"),
        ("graph.tsv", b"a\tb\tc\n"),
        ("index/passages.sha256", b"ab" * 32),
        ("data.csv", "ä,b\n".encode()),
        ("a.yaml", b"a: [1, {b: c}]\n---\nd: 2"),
        ("plot.png", PNG),
        ("photo.JPG", b"\xff\xd8\xff\xe0" + bytes(20)),
        ("a.webp", b"RIFF\x00\x00\x00\x00WEBPVP8 "),
        ("tokenizer.model", b"\x0a\x03\x0a\x01a\x12\x02\x08\x01"),
        ("tokenizer.model", b"IQ== 0\nIg== 1\n"),
        ("q4/model.gguf", gguf_with_tensor()),
        ("train.parquet", b"PAR1" + bytes(9) + (5).to_bytes(4, "little") + b"PAR1"),
        ("index/data.csc.index.npy", saved(np.zeros(3, np.float32))),
        ("index/embeddings.npy", saved(np.zeros((3, 384), np.int8))),
        ("notes.txt", b"cat\ndog\n. The end"),
        ("notes.txt", b"GGUF is a format, MZ a tractor, PK a psychic power."),
    ],
)
def test_what_cards_and_models_are_made_of_passes(path: str, content: bytes) -> None:
    check(path, content)


def test_a_model_of_transformers_and_an_index_of_a_card_pass(tmp_path: Path) -> None:
    """The model is the base that the package ships."""
    for path in MODEL.iterdir():
        if path.name != "SHA256SUMS":
            check(path.name, path.read_bytes())
    Index.write(["Moons are small.", "Planets are not."], tmp_path / "index")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 2
    for path in files:
        check(path.relative_to(tmp_path).as_posix(), path.read_bytes())


DANGEROUS = (
    "pytorch_model.bin model.PT a/b.pkl x.ckpt x.npy x.npz x.h5 x.joblib x.pth x.keras modeling.py "
    "x.ipynb run.sh lib.so x.svg x.html x.zip x.tar.gz x.ggml x.onnx other/data.csc.index.npy "
    "index/data.csc.index.NPY model.safetensors.pkl"
)


@pytest.mark.parametrize("path", DANGEROUS.split())
def test_dangerous_name_is_refused_whatever_is_in_it(path: str) -> None:
    with pytest.raises(Dangerous, match="not allowed"):
        check(path, b"{}")
    with pytest.raises(Dangerous, match="not allowed"):
        kind_of(path, 2)


@pytest.mark.parametrize("path", ["x.foo", "Makefile", "x", ".env", "model.safetensors.bak", ".json"])
def test_unknown_name_is_refused(path: str) -> None:
    with pytest.raises(Invalid, match="unknown kind of file"):
        check(path, b"{}")


NAMES = (
    "model.safetensors config.json a.txt a.jsonl README.md a.yaml tokenizer.model a.csv a.png a.gguf a.parquet "
    "index/data.csc.index.npy LICENSE"
)
ALLOWED = NAMES.split()


@pytest.mark.parametrize("path", ALLOWED)
@pytest.mark.parametrize(
    ("content", "what"),
    [
        *((pickle.dumps(Shout(), protocol), "pickle") for protocol in range(6)),
        (zipped("archive/data.pkl"), "zip"),
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "HDF5"),
        (saved([Shout()]), "numpy|numbers"),
        (b"\x7fELF\x02\x01\x01" + bytes(100), "program"),
        (b"MZ\x90\x00" + bytes(100), "program"),
        (b"\x1f\x8b\x08\x00" + b"\xff" * 50, "gzip"),
        (bytes(257) + b"ustar" + bytes(250), "tar|tokenizer|NUL|"),
    ],
)
def test_dangerous_content_is_refused_under_every_name(path: str, content: bytes, what: str) -> None:
    with pytest.raises(Dangerous, match=f"{what}|numbers"):
        check(path, content)


@pytest.mark.parametrize("path", sorted({*ALLOWED} - {"a.gguf"}))
def test_gguf_is_refused_under_every_other_name(path: str) -> None:
    with pytest.raises(Dangerous, match=r"is GGUF weights, not what its name says|numbers"):
        check(path, gguf_with_tensor())


def legacy_torch_file(protocol: int) -> bytes:
    """Pickles in a row, as torch.save wrote before it wrote zip archives."""
    stacked = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, Shout())
    return b"".join(pickle.dumps(part, protocol) for part in stacked)


@pytest.mark.parametrize("path", ["a.txt", "a.model", "a.csv", "LICENSE", "a.jsonl"])
@pytest.mark.parametrize(
    "content",
    [
        legacy_torch_file(0),
        b"N.I1\n." + pickle.dumps(Shout(), 0),
        pickle.dumps("x" * 10_000, 0) + pickle.dumps(Shout(), 0),
        b"N0" * 5_000 + pickle.dumps(Shout(), 0),
        b"S'\\xe9'\n0" + pickle.dumps(Shout(), 0),
        "S'é'\n0".encode() + pickle.dumps(Shout(), 0),
    ],
)
def test_a_pickle_behind_others_is_refused(path: str, content: bytes) -> None:
    with pytest.raises(Dangerous, match="pickle"):
        check(path, content)


@pytest.mark.parametrize(
    "text",
    [
        "(i) The parties agree\nas follows:\n(ii) nothing else.\n",
        "N.B. cats\nand dogs\n)R",
        "".join(f"Verb{number}\n" for number in range(5_000)),
        "cat\ndog\n(tidy)R\n",
        "]. }. ). N.",
        "I1\nI2\nI3\n",
        "The " * 100_000,
    ],
)
def test_text_of_valid_opcodes_is_text(text: str) -> None:
    check("a.txt", text.encode())


def test_a_vocabulary_of_countless_empty_pieces_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kcard.hub.checks.formats.MAX_VOCABULARY_PIECES", 100)
    check("a.model", b"\x0a\x00" * 100)
    with pytest.raises(Invalid, match="more than 100 pieces"):
        check("a.model", b"\x0a\x00" * 101)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("a.json", b"[" + b"[]," * (1 << 20) + b"[]]"),
        ("a.json", b"[" + b'"",' * (1 << 20) + b"1]"),
        ("a.jsonl", b"\n" * (4 << 20)),
        ("a.model", b"\x0a\x02\x0a\x00" * 400_000),
    ],
)
def test_the_check_of_a_large_file_takes_seconds_at_most(path: str, content: bytes) -> None:
    began = time.process_time()
    check(path, content)
    assert time.process_time() - began < 4


@pytest.mark.parametrize(
    ("path", "content", "why"),
    [
        ("a.txt", b"a\0b", "NUL"),
        ("a.txt", b"\xff\xfea\x00", "UTF-8"),
        ("config.json", '{"auto_map": {}}'.encode("utf-16"), "UTF-8"),
        ("config.json", '{"a": 1}'.encode("utf-32-le"), "NUL"),
        ("a.txt", b"x" * (1 << 20) + b"\xc3", "UTF-8"),
        ("config.json", b'{"a": [1', "2 unclosed brackets"),
        ("config.json", b'{"a": "b', "unterminated"),
        ("config.json", b"{}]", "unbalanced"),
        ("deep.json", b"[" * 65 + b"]" * 65, "64 levels"),
        ("deep.jsonl", b"{}\n" + b"[" * 65 + b"]" * 65, "line 2: JSON nested too deeply"),
        ("a.png", b"<svg onload=alert(1)>", "not a PNG"),
        ("a.parquet", b"PAR1xPAR1", "Parquet"),
        ("a.parquet", b"PAR1" + bytes(9) + (10).to_bytes(4, "little") + b"PAR1", "Parquet"),
        ("tokenizer.model", b"\x0a\xff\xff\xff\xff\x0f", "sentencepiece model"),
        ("tokenizer.model", b"\x0a\x03\x0a\x01", "sentencepiece model"),
        ("tokenizer.model", b"\x0a\x01a\x4b", "sentencepiece model"),
        ("index/data.csc.index.npy", saved(np.zeros(3, np.float32))[:-1], "says 3 numbers"),
        ("index/data.csc.index.npy", saved(np.zeros((3, 3), np.float32)), "numbers"),
        ("index/embeddings.npy", saved(np.zeros((3, 4), np.int8))[:-1], "says 12 numbers"),
        ("index/embeddings.npy", saved(np.zeros((3, 4), np.int8, order="F")), "numbers"),
        ("a.yaml", b"a: &x 1\nb: *x", "anchors"),
        ("a.yaml", b"!!python/object/apply:os.system [ls]", "tag"),
        ("a.yaml", b"a: [", "not valid YAML"),
        ("a.yaml", b"[" * 33 + b"]" * 33, "32 levels"),
        ("README.md", b"---\na: *b\n---\n", "anchors"),
        ("README.md", b"---\n- a\n---\n", "key: value"),
    ],
)
def test_file_that_is_not_what_its_name_says_is_refused(path: str, content: bytes, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        check(path, content)


@pytest.mark.parametrize(
    "text",
    [
        '{"auto_map": {"AutoModel": "m.M"}}',
        '{"auto_map" : ["a--m.M"]}',
        '{"auto_map":"m.M"}',
        '{"\\u0061uto_map": {}}',
        '{"a": [{"b": {"auto_map": {"x": "y"}}}]}',
        '{"custom_pipelines": {"a": {}}}',
        '{"auto_map": 1, "auto_map": {}}',
        '{"pad": "%s", "auto_map": {}}' % ("x" * (1 << 20)),
        '{"auto_map"' + " " * (1 << 20) + ":" + "\n" * (1 << 20) + "{}}",
        '{"%s": 1, "auto_map": []}' % ('\\"' * 600_000),
    ],
)
def test_json_that_makes_a_loader_run_code_is_refused(text: str) -> None:
    json.loads(text)
    with pytest.raises(Dangerous, match="makes loaders run code"):
        check("tokenizer_config.json", text.encode())


def test_endless_string_is_not_read_again_and_again() -> None:
    with pytest.raises(Invalid, match="unterminated"):
        check("a.json", b'{"a": "' + b"x" * (20 << 20) + b'"}')


values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=6) | st.just("auto_map"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=20,
)


@given(values, st.booleans())
def test_any_json_without_code_passes(value: object, indented: bool) -> None:
    text = json.dumps(value, indent=2 if indented else None, ensure_ascii=False)
    check("a.json", text.encode(errors="replace"))


@given(values, st.integers(1, 40))
def test_json_is_judged_alike_however_it_comes_in_parts(value: object, size: int) -> None:
    class Dripping(io.BytesIO):
        def read(self, at_most: int | None = -1, /) -> bytes:
            return super().read(min(size, at_most) if at_most and at_most > 0 else at_most)

    harmless, code = (json.dumps(each).encode() for each in ({"a": value}, {"a": [value, {"auto_map": {}}]}))
    check_file("a.json", len(harmless), lambda: Dripping(harmless))
    with pytest.raises(Dangerous):
        check_file("a.json", len(code), lambda: Dripping(code))


@given(st.binary(max_size=300), st.sampled_from(ALLOWED))
def test_noise_is_refused_or_passes_but_nothing_else_is_raised(noise: bytes, path: str) -> None:
    with suppress(Invalid):
        check(path, noise)


def test_file_larger_than_its_readers_would_hold_is_refused_before_it_is_read() -> None:
    for path in ("a.json", "README.md", "a.yaml", "a.png", "tokenizer.model"):
        with pytest.raises(TooLarge, match="this kind of file"):
            kind_of(path, 65 << 20)
    kind_of("model.safetensors", 1 << 40)


# GGUF: every count and length of its header is bounded, and every tensor is in the file.

ENTRY = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"hello there", "a.gguf is not a GGUF file"),
        (b"GGUF", "cut off after 4 bytes"),
        (gguf_with_tensor()[:-1], "cut off after"),
        (gguf_with_tensor()[:60], "cut off after 60 bytes"),
        (gguf_with_tensor(offset=32), "cut off after"),
        (gguf_with_tensor(offset=1 << 63, kind=999), "cut off after"),
        (gguf_with_tensor(alignment=0), "an alignment of 0"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version 50331648 of the format is unknown"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 40, 0), f"{1 << 40} entries"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 40), f"a text of {1 << 40} bytes"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("a") + struct.pack("<I", 5), "a list of 5"),
        (ENTRY + struct.pack("<I", 77), "unknown type 77"),
        (ENTRY + struct.pack("<IIQ", 9, 4, 1 << 50), f"a list of {1 << 50}"),
        (ENTRY + struct.pack("<IQ", 9, 1) * 9, "a list of|lists within lists"),
    ],
)
def test_gguf_that_is_damaged_cut_off_or_no_gguf_is_refused_in_one_line(content: bytes, why: str) -> None:
    with pytest.raises(Invalid, match=why) as error:
        check("a.gguf", content)
    assert not isinstance(error.value, Dangerous)
    assert "\n" not in str(error.value)


def test_of_gguf_no_more_is_read_than_the_longest_header(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = text("general.name") + struct.pack("<I", 8) + text("x" * 200)
    monkeypatch.setattr("kcard.gguf_file.MAX_HEADER_BYTES", 100)
    stream = io.BytesIO(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + entry)
    with pytest.raises(Invalid, match="a header of more than 100 bytes"):
        check_gguf("a.gguf", len(stream.getvalue()), stream)
    assert stream.tell() == 100


def test_a_list_of_gguf_takes_no_more_memory_than_its_bytes() -> None:
    """A list of empty texts would take six times as much."""
    listed = struct.pack("<IIQ", 9, 8, 1 << 20) + bytes(8 << 20)
    content = ENTRY + listed
    stream = io.BytesIO(content)
    tracemalloc.start()
    check_gguf("a.gguf", len(content), stream)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < len(content) + (1 << 20)


# Safetensors: a header must describe exactly the bytes that follow it.


BYTES = {"U8": 1, "BF16": 2, "F32": 4, "I64": 8}


def packed(header: Mapping[str, Any] | str, data: bytes = b"") -> bytes:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return len(text).to_bytes(8, "little") + text + data


def tensor(dtype: Any = "F32", shape: Any = (2, 2), offsets: Any = (0, 16)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


# What the format's own library makes of a file; it raises SafetensorError.
oracle: Callable[[bytes], object] = safetensors.deserialize


def check_tensors(file: bytes) -> None:
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
    check_tensors(file)


@given(files(), st.data())
def test_file_with_bytes_changed_passes_only_where_the_format_has_no_objection(
    file: bytes, data: st.DataObject
) -> None:
    changed = bytearray(file)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    for content in (bytes(changed), data.draw(st.binary(max_size=200))):
        with suppress(Invalid):
            check_tensors(content)
            oracle(content)


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
        (packed(r'{"\ud800": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}'), "invalid header"),
        (packed(r'{"__metadata__": {"note": "\udc00"}}'), "invalid header"),
        (packed(r'{"__metadata__": {"note": "\u12"}}'), "invalid header"),
    ],
)
def test_header_that_does_not_fit_its_bytes_is_refused(file: bytes, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        check_tensors(file)


def test_header_and_number_of_tensors_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    two = packed({"a": tensor("U8", [], (0, 1)), "b": tensor("U8", [], (1, 2))}, b"xy")
    check_tensors(two)
    monkeypatch.setattr("kcard.hub.checks.tensors.MAX_TENSORS", 1)
    with pytest.raises(Invalid, match="more than 1 tensors"):
        check_tensors(two)
    monkeypatch.setattr("kcard.hub.checks.tensors.MAX_HEADER_BYTES", 20)
    with pytest.raises(Invalid, match="header of"):
        check_tensors(two)


def test_only_the_header_is_read() -> None:
    file = packed({"a": tensor("U8", [1 << 20], (0, 1 << 20))}, bytes(1 << 20))
    stream = io.BytesIO(file)
    check_safetensors("m.safetensors", len(file), stream)
    assert stream.tell() == len(file) - (1 << 20)
