"""Small documents that tests write, and the blocks and passages that are read of them."""

from collections.abc import Sequence
from pathlib import Path

from kcard.training.corpus import read_corpus
from kcard.training.readers.files import Block, Document, format_of


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def blocks(folder: Path, name: str, text: str | bytes) -> list[Block]:
    """What the reader of the format makes of it."""
    path = written(folder, name, text)
    kind = format_of(path)
    assert kind is not None
    return [*kind.read(Document(path, name))]


def kinds_and_texts(blocks: list[Block]) -> list[tuple[str, str]]:
    """Kinds and texts."""
    return [(block.kind, block.text) for block in blocks]


def sections(folder: Path, name: str, text: str | bytes) -> list[tuple[str, str]]:
    """The passages of a file with their headings."""
    return [(p.section, p.text) for p in read_corpus(written(folder, name, text)).passages]


# PDF files, as small as they can be.


Line = tuple[str, int]  # a text and the size of its letters
BODY = 11
CELL_WIDTH = 90  # points


def pdf(path: Path, pages: Sequence[Sequence[Line | str]]) -> Path:
    """The smallest PDF that shows these lines, top to bottom, in the base font that every reader has. A line without a
    size is body text; tabs divide the cells of a row."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", ""]
    kids = []
    for lines in pages:
        shown = "".join(map(_shown, lines))
        stream = f"BT 14 TL 50 780 Td {shown}ET"
        kids.append(f"{len(objects) + 1} 0 R")
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 900 842] /Contents {len(objects) + 2} 0 R "
            "/Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>",
            f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        ]
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    data, starts = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        starts.append(len(data))
        data += f"{number} 0 obj\n{content}\nendobj\n".encode("latin-1")
    table = "".join(f"{start:010} 00000 n \n" for start in starts)
    size = len(objects) + 1
    data += (
        f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n<< /Size {size} /Root 1 0 R >>\n"
        f"startxref\n{len(data)}\n%%EOF\n"
    ).encode()
    path.write_bytes(data)
    return path


def _shown(line: Line | str) -> str:
    text, size = line if isinstance(line, tuple) else (line, BODY)
    cells = text.replace("(", r"\(").replace(")", r"\)").split("\t")
    shown = f" {CELL_WIDTH} 0 Td ".join(f"({cell}) Tj" for cell in cells)
    return f"/F1 {size} Tf {shown} {-CELL_WIDTH * (len(cells) - 1)} 0 Td T* "
