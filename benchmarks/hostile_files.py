"""Read about 200 files that are made to harm their reader, and list what became of them by kind.

    python -m benchmarks.hostile_files [--seconds 2] [--kind NAME ...] [--json]

Each file is read alone, as a corpus of one file, under a limit of `--seconds` instead of a minute; the other limits are
those of every corpus. A file passes if it is read, or refused with one line; anything else ends the benchmark. Each
kind is measured in a process of its own. MB are those of the process that needed most: one that reads, a program that
it starts, or the one that cuts passages.
"""

import argparse
import gzip
import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kcard.errors import CorpusError
from kcard.training.corpus import read_corpus
from kcard.training.readers import process

TEXT = "Letters are sorted by their sender.\n"
OFFICE = "http://schemas.openxmlformats.org"
CORPUS = "corpus"  # the folder of the files that are read
Files = Iterator[tuple[str, str | bytes]]


def word(body: str, parts: dict[str, bytes] | None = None) -> bytes:
    """Return a Word document with this body, and parts that replace its own."""
    content = {
        "[Content_Types].xml": f'<Types xmlns="{OFFICE}/package/2006/content-types"/>'.encode(),
        "_rels/.rels": (
            f'<Relationships xmlns="{OFFICE}/package/2006/relationships"><Relationship Id="r1" Type="{OFFICE}/'
            'officeDocument/2006/relationships/officeDocument" Target="word/document.xml"/></Relationships>'
        ).encode(),
        "word/document.xml": (
            f'<w:document xmlns:w="{OFFICE}/wordprocessingml/2006/main"><w:body>{body}</w:body></w:document>'
        ).encode(),
    }
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in (content | (parts or {})).items():
            packed.writestr(name, data)
    return stream.getvalue()


def pdf(stream: bytes, pages: int = 1, kids: str = "") -> bytes:
    """Return a PDF whose pages all show one compressed stream; `kids` replaces the list of its pages."""
    packed = zlib.compress(stream)
    shown = kids or " ".join(f"{number} 0 R" for number in range(4, 4 + pages))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{shown}] /Count {pages} >>".encode(),
        b"<< /Length %d /Filter /FlateDecode >>\nstream\n" % len(packed) + packed + b"\nendstream",
    ]
    font = "<< /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >>"
    page = f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 900 842] /Contents 3 0 R /Resources {font} >>"
    objects += [page.encode()] * pages
    data, starts = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        starts.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = "".join(f"{start:010} 00000 n \n" for start in starts)
    end = f"xref\n0 {len(starts) + 1}\n0000000000 65535 f \n{table}trailer\n<< /Size {len(starts) + 1} /Root 1 0 R >>\n"
    return data + end.encode() + f"startxref\n{len(data)}\n%%EOF\n".encode()


def parquet(columns: dict[str, object]) -> bytes:
    import pyarrow
    from pyarrow.parquet import write_table

    stream = io.BytesIO()
    write_table(pyarrow.table(columns), stream, compression="zstd")
    return stream.getvalue()


SHOWN = b"BT /F1 12 Tf 50 700 Td (Letters are sorted by their sender.) Tj ET\n"


def examples() -> dict[str, str | bytes]:
    """Return a valid file of each format."""
    return {
        "a.txt": TEXT * 20,
        "a.md": f"# Letters\n\n{TEXT}\n- {TEXT}\n```\nsort\n```\n",
        "a.rst": f"Letters\n=======\n\n{TEXT}\nSee :doc:`senders <all>`.\n",
        "a.html": f"<html><body><h1>Letters</h1><p>{TEXT}</p></body></html>",
        "a.info": f"\x1f\nFile: a,  Node: Top,  Up: (dir)\n\nLetters\n*******\n\n{TEXT}",
        "a.1": f".TH LETTERS 1\n.SH NAME\nletters \\- sort\n.SH USE\n{TEXT}",
        "a.csv": f"id,text\n1,{TEXT}2,{TEXT}",
        "a.tsv": "Rhine\tflows through\tBasel\nRhine\tflows through\tBonn\n",
        "a.jsonl": json.dumps({"text": TEXT}) + "\n",
        "a.docx": word(f"<w:p><w:r><w:t>{TEXT}</w:t></w:r></w:p>"),
        "a.pdf": pdf(SHOWN),
        "a.parquet": parquet({"text": [TEXT] * 20}),
        "a.txt.gz": gzip.compress(TEXT.encode() * 20),
    }


def nesting() -> Files:
    tags = ("div", "table><tr><td", "ul><li", "blockquote", "span class=x", "b", "svg", "form")
    for count in (200, 5_000, 100_000):
        for tag in tags:
            yield f"{tag[:3]}-{count}.html", f"<p>{TEXT}</p>" + f"<{tag}>" * count + TEXT
        yield f"quote-{count}.md", "> " * count + TEXT
        yield f"list-{count}.md", "- " * count + TEXT
        yield f"link-{count}.md", "[" * count + "x" + "](y)" * count
        yield f"strong-{count}.md", "**a _b " * count
        yield f"array-{count}.jsonl", '{"text": ' + "[" * count + "]" * count + "}\n"
        yield f"table-{count}.docx", word("<w:tbl><w:tr><w:tc>" * count + "</w:tc></w:tr></w:tbl>" * count)
    for suffix in ("txt", "rst", "md"):
        lines = "".join(" " * number + "x\n" for number in range(1_200))
        yield f"indented.{suffix}", f"{TEXT}\n```\n{lines}```\n" if suffix == "md" else f"{TEXT}\n{lines}"


REPEATED = {
    "html": (
        "<!-- ",
        "<script ",
        "<img>",
        "<i class=x></i>",
        "<b>x</b> ",
        "<li>x",
        "<br>a",
        "<tr><td>x",
        "&amp",
        "<a ",
    ),
    "md": ("<!-- ", "`", "[", "![a](", "*a_ ", "<a ", "| a ", "[a]: b\n", "&", "\\"),
    "txt": (" *a*", ". ", '"', "( ", "\t", "'a ", "a-\n", "......", "x", "\u0301"),
    "rst": (":a", "`a ", "``", "*a", ".. a::\n", " ", "::\n"),
    "info": ("*note a ", "*note a: ", "* a: ", "\x1f\n"),
    "1": (".TP\n", "\\fB", ".nr a 1\n", "\\&"),
    "csv": ("a,", '"', ";"),
    "tsv": ('a\tb\t"^^', "\t"),
    "jsonl": ('{"text": "a"}\n',),
}


def repetition() -> Files:
    starts = {"1": ".TH A 1\n.SH B\n", "info": "\x1f\nFile: a,  Node: b,\n\n", "csv": "id,text\n1,"}
    for suffix, units in REPEATED.items():
        for number, unit in enumerate(units):
            start = starts.get(suffix, "" if suffix in ("jsonl", "tsv") else f"{TEXT}\n")
            yield f"unit-{number}.{suffix}", start + unit * (400_000 // len(unit))


def bombs() -> Files:
    import pyarrow

    yield "styles.docx", word("", {"word/styles.xml": b"<w:style/>" * 12_000_000})
    yield "less-styles.docx", word("<w:p/>", {"word/styles.xml": (
        f'<w:styles xmlns:w="{OFFICE}/wordprocessingml/2006/main">'.encode()
        + b'<w:style w:type="paragraph" w:styleId="a"><w:name w:val="b"/></w:style>' * 1_300_000 + b"</w:styles>"
    )})  # fmt: skip
    yield "text.docx", word("<w:p><w:r><w:t>a</w:t></w:r></w:p>" * 2_500_000)
    yield "cells.docx", word(f"<w:tbl><w:tr>{'<w:tc><w:p/></w:tc>' * 2_000_000}</w:tr></w:tbl>")
    yield "page.pdf", pdf(SHOWN * 8_000_000)
    yield "pages.pdf", pdf(SHOWN * 2_000, pages=20_000)
    yield "graphics.pdf", pdf(b"q 1 0 0 1 0 0 cm\n" * 20_000_000)
    yield "zeros.txt.gz", gzip.compress(b"\0" * 300_000_000)
    yield "text.txt.gz", gzip.compress(TEXT.encode() * 8_000_000)
    yield "page.html.gz", gzip.compress(b"<p>a" * 40_000_000)
    for rows, size in ((2_000, 1_000_000), (90_000, 50_000)):
        column = pyarrow.array(["a " * (size // 2)]).dictionary_encode().take(pyarrow.array([0] * rows))
        yield f"repeated-{rows}.parquet", parquet({"text": column})
    yield (
        "rows.parquet",
        parquet({"text": pyarrow.array(["a"]).dictionary_encode().take(pyarrow.array([0] * 10**7))}),
    )
    yield "columns.parquet", parquet({f"c{number}": ["a"] for number in range(20_000)})
    yield "print.1", ".TH A 1\n.SH B\n.while 1 letters\n"
    yield "report.1", ".TH A 1\n.SH B\n.while 1 .tm letters\n"
    yield "recursion.1", ".TH A 1\n.SH B\n.de a\n.a\n..\n.a\n"
    yield "string.1", ".TH A 1\n.SH B\n.ds a aaaaaaaa\n.while 1 .as a \\*a\n"
    yield "entities.docx", word("", {"word/document.xml": (
        b"<!DOCTYPE a [<!ENTITY x0 'letters'>"
        + b"".join(b"<!ENTITY x%d '%s'>" % (n, b"&x%d;" % (n - 1) * 50) for n in range(1, 9)) + b"]><a>&x8;</a>"
    )})  # fmt: skip


def lies() -> Files:
    """Headers that do not say the truth, and structures that lead to themselves."""
    good = examples()
    docx, table, page = (bytes(good[name]) for name in ("a.docx", "a.parquet", "a.pdf"))  # type: ignore[arg-type]
    for number, size in enumerate((0, 10, 2**31 - 1, 2**32 - 1)):
        name = b"word/document.xml"
        at = docx.rindex(b"PK\x01\x02", 0, docx.rindex(name))
        yield f"size-{number}.docx", docx[: at + 24] + size.to_bytes(4, "little") + docx[at + 28 :]
        yield f"count-{number}.parquet", table[:-8] + size.to_bytes(4, "little") + table[-4:]
    for number, size in enumerate((-1, 0, 10**9, 2**63)):
        yield f"length-{number}.pdf", re.sub(rb"/Length \d+", b"/Length %d" % size, page)
        yield f"pages-{number}.pdf", re.sub(rb"/Count \d+", b"/Count %d" % size, page)
    yield "itself.pdf", pdf(SHOWN, kids="2 0 R 2 0 R")
    yield "missing.pdf", pdf(SHOWN, pages=5, kids="99 0 R 4 0 R 4 0 R")
    yield "sum.txt.gz", gzip.compress(TEXT.encode())[:-8] + b"\0" * 8
    yield "other.docx", docx.replace(b"word/document.xml", b"../../document.xm")
    yield "text.parquet", b"PAR1" + TEXT.encode() * 20 + b"PAR1"
    yield "script.docx", b"#!/bin/sh\n" + TEXT.encode()


def encodings() -> Files:
    good = examples()
    for name in ("a.txt", "a.md", "a.rst", "a.html", "a.info", "a.1", "a.csv", "a.tsv", "a.jsonl"):
        content = str(good[name])
        yield f"utf16-{name}", content.encode("utf-16")
        yield f"nul-{name}", content.replace("sorted", "sor\0ted")
        yield f"latin-{name}", content.encode() + b"\xe9\xff\xc0\x80\n"
        yield f"control-{name}", content + "\x1b[2J\x07\u202e\ufeff\u2028\x85\n"
    yield "surrogate.jsonl", '{"text": "a \\ud800 b"}\n'
    yield "surrogate.html", "<p>a &#xd800; &#0; &#x110000; b</p>"


def truncated() -> Files:
    for name, content in examples().items():
        data = content.encode() if isinstance(content, str) else content
        for part in (0.2, 0.5, 0.9):
            yield f"cut-{int(10 * part)}-{name}", data[: int(part * len(data))]


def noise() -> Files:
    draw = random.Random(0)
    for name, content in examples().items():
        data = content.encode() if isinstance(content, str) else content
        yield f"noise-{name}", draw.randbytes(20_000)
        changed = bytearray(data)
        for _ in range(1 + len(data) // 40):
            changed[draw.randrange(len(data))] = draw.randrange(256)
        yield f"changed-{name}", bytes(changed)


def wide() -> Files:
    yield "header.csv", ",".join(f"c{number}" for number in range(200_000)) + "\n1,2\n"
    yield "name.csv", "a" * 1_000_000 + ",b\n1,2\n"
    yield "cell.csv", "id,text\n1," + "a" * 20_000_000 + "\n"
    yield "quote.csv", 'id,text\n1,"' + TEXT * 200_000
    yield "line.txt", "a" * 20_000_000
    yield "heading.md", f"# {'a' * 300_000}\n\n" + f"{TEXT}\n" * 5_000
    yield "key.jsonl", '{"' + "a" * 1_000_000 + '": 1}\n'
    yield "number.jsonl", '{"text": ' + "1" * 100_000 + "}\n"
    yield "attributes.html", f"<p {' '.join(f'a{n}=b' for n in range(100_000))}>{TEXT}</p>"
    yield "code.md", f"{TEXT}\n```\n" + "a = 1\n" * 100_000 + "```\n"


REQUESTS = (
    ".so {file}", ".mso {file}", ".if n .so {file}", ".als a so\n.a {file}", ".als a mso\n.a {file}",
    ".de a\n.so \\\\$1\n..\n.a {file}", ".if n .cf {file}", ".if n .trf {file}", ".if n .nx {file}",
    ".psbb {file}", ".pso cat {file}", ".sy cat {file}", ".open a {file}", "\\V[KCARD_SECRET]",
    ".cc !\n!so {file}\n!cc .", ".Bd -literal -file {file}\n.Ed", ".hpf {file}", ".do so {file}",
)  # fmt: skip
SECRET = "the-secret-of-this-machine"


def requests() -> Files:
    """Man pages that ask for a file outside the corpus, or for the environment."""
    for number, request in enumerate(REQUESTS):
        for name, start in (("man", ".TH A 1\n.SH B\n"), ("mdoc", ".Dd July 1, 2020\n.Dt A 1\n.Os\n.Sh B\n")):
            yield f"{name}-{number}.1", f"{start}{request.format(file='@SECRET@')}\n{TEXT}"


def links(folder: Path, secret: Path) -> None:
    """Make links in a folder, which no format needs to know."""
    (folder / "out.txt").symlink_to(secret)
    (folder / "relative.md").symlink_to("../secret")
    (folder / "loop.txt").symlink_to("loop.txt")
    (folder / "broken.txt").symlink_to("nowhere")
    (folder / "system.txt").symlink_to("/etc/passwd")
    (folder / "endless.txt").symlink_to("/dev/zero")
    (folder / "folder").symlink_to("/etc")
    os.mkfifo(folder / "pipe.txt")


KINDS: dict[str, Callable[[], Files]] = {
    "nesting": nesting,
    "repetition": repetition,
    "bombs": bombs,
    "lies in headers": lies,
    "encodings": encodings,
    "truncated": truncated,
    "noise": noise,
    "long lines and headers": wide,
    "requests of man pages": requests,
}
LINKS = "links"


@dataclass(frozen=True)
class Outcome:
    """What became of the files of a kind: counts, seconds and MB at most, the reasons with their counts."""

    kind: str
    files: int
    read: int
    seconds: float
    megabytes: float
    slowest: str
    reasons: dict[str, int]


def measure(kind: str, seconds: float) -> Outcome:
    """Read the files of a kind. SystemExit for one that does what none may do."""
    import resource

    process.SECONDS, process.SECONDS_PER_MB = seconds, 0.0
    os.environ["KCARD_SECRET"] = SECRET
    times: dict[str, float] = {}
    reasons: Counter[str] = Counter()
    read = 0
    with tempfile.TemporaryDirectory() as place:
        secret = Path(place) / "secret"
        secret.write_text(f"{SECRET}\n" * 3)
        folder = Path(place) / CORPUS
        folder.mkdir()
        if kind == LINKS:
            links(folder, secret)
            (folder / "good.txt").write_text(TEXT)
            corpus = read_corpus(folder)
            if len(corpus.passages) != 1:
                raise SystemExit("a link was followed")
            return Outcome(kind, 8, 0, 0.0, 0.0, "", dict(Counter(_shape(why) for _, why in corpus.skipped)))
        for name, content in KINDS[kind]():
            file = folder / name
            data = content.encode() if isinstance(content, str) else content
            file.write_bytes(data.replace(b"@SECRET@", str(secret).encode()))
            began = time.monotonic()
            try:
                texts = [f"{passage.section} {passage.text}" for passage in read_corpus(file).passages]
            except CorpusError as error:
                if "\n" in str(error) or len(str(error)) > 1200:
                    raise SystemExit(f"{name}: its reason is not one line") from error
                reasons[_shape(str(error).replace(str(file), ""))] += 1
            else:
                read += 1
                if any(SECRET in text for text in texts):
                    raise SystemExit(f"{name}: shows a file outside the corpus")
            times[name] = time.monotonic() - began
            file.unlink()
        process.end_idle_processes()
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF))
    slowest = max(times, key=times.__getitem__)
    return Outcome(kind, len(times), read, times[slowest], peak / 1000, slowest, dict(reasons))


SHAPES = (
    ("takes more than .* s", "too slow"),
    ("takes more than .* MB|ends its reader", "too much memory, or a crash"),
    ("unpacks to|holds more|rows in", "unpacks to too much"),
    ("nested too deeply", "nested too deeply"),
    ("reads another file", "reads another file"),
    ("holds no text|no header|no text column|has no string", "no text"),
    ("leads out of", "leads out"),
    ("broken link|regular file|link to a folder", "no file"),
    ("not UTF-8|UTF-16", "not UTF-8"),
    (".", "damaged"),
)


def _shape(reason: str) -> str:
    return next(shape for pattern, shape in SHAPES if re.search(pattern, reason))


def report(outcomes: Sequence[Outcome]) -> str:
    lines = ["| kind | files | read | refused | seconds at most | MB at most |", "|---|---|---|---|---|---|"]
    for row in outcomes:
        refused = ", ".join(f"{reason} {count}" for reason, count in sorted(row.reasons.items()))
        lines.append(
            f"| {row.kind} | {row.files} | {row.read} | {refused} | {row.seconds:.1f} | {row.megabytes:,.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--kind", nargs="+", choices=[*KINDS, LINKS], default=[*KINDS, LINKS])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.json and len(options.kind) == 1:
        print(json.dumps(asdict(measure(options.kind[0], options.seconds))))
        return
    outcomes = []
    for kind in options.kind:
        command = [sys.executable, "-m", "benchmarks.hostile_files", "--json", "--kind", kind]
        done = subprocess.run(
            [*command, "--seconds", str(options.seconds)], stdout=subprocess.PIPE, check=True
        )
        outcomes.append(Outcome(**json.loads(done.stdout)))
        print(f"{kind}: slowest {outcomes[-1].slowest}", file=sys.stderr)
    print(json.dumps([asdict(row) for row in outcomes]) if options.json else report(outcomes))


if __name__ == "__main__":
    main()
