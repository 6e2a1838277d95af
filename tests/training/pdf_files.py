"""PDF files for tests, as small as they can be."""

from collections.abc import Sequence
from pathlib import Path

__all__ = ["BODY", "Line", "pdf"]

Line = tuple[str, int]  # a text and the size of its letters
BODY = 11


def pdf(path: Path, pages: Sequence[Sequence[Line | str]]) -> Path:
    """The smallest PDF that shows these lines, top to bottom, in the base font that every reader has. A line without a
    size is body text."""
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
    quoted = text.replace("(", r"\(").replace(")", r"\)")
    return f"/F1 {size} Tf ({quoted}) Tj T* "
