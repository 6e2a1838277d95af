"""Training rows of the checker: claim, evidence and label, read from VitaminC's tokenised text."""

import gzip
import json
import re
from dataclasses import dataclass
from pathlib import Path

SUPPORTS, REFUTES, UNKNOWN, UNSUPPORTED = range(4)
LABELS = {"SUPPORTS": SUPPORTS, "REFUTES": REFUTES, "NOT ENOUGH INFO": UNKNOWN}
BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "``": '"', "''": '"', "\ufffd": " "}


@dataclass(frozen=True)
class Row:
    """UNSUPPORTED is a label for rows of which only that much is known: refuted, or not decided."""

    claim: str
    evidence: str
    label: int


def read(path: Path) -> list[Row]:
    """Rows of a .jsonl or .jsonl.gz file with the keys claim, evidence and label."""
    with (
        gzip.open(path, "rt", encoding="utf-8")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8") as lines
    ):
        data = [json.loads(line) for line in lines]
    rows = (Row(_clean(d["claim"]), _clean(d["evidence"]), LABELS[d["label"]]) for d in data)
    return [row for row in rows if row.claim and row.evidence]


def _clean(text: str) -> str:
    """Undo the tokenisation that the published files carry."""
    for mark, plain in BRACKETS.items():
        text = text.replace(mark, plain)
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r" ([.,;:!?)\]%])", r"\1", text)
    text = re.sub(r"([(\[$£]) ", r"\1", text)
    text = re.sub(r" ('s|n't|'re|'ve|'m|'ll|'d)\b", r"\1", text)
    return re.sub(r'" ([^"]+) "', r'"\1"', text).strip()
