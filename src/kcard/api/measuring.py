"""The child process that measures one card: `python -m kcard.api.measuring`, started by kcard.api.measurement.

It reads a request, one line of JSON, from stdin, writes RESULT into the current folder, and ends when stdin does, so
that no child outlives its worker. A card is not trusted: before it is read, the process limits its memory, processor
time and files, and forbids itself to start programs and, unless the evidence is on other servers, to open connections.
"""

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from kcard.api.confinement import limit
from kcard.errors import CardError, KcardError, one_line

__all__ = ["RESULT", "main"]

RESULT = "result.json"


def main() -> None:
    """Measure the card of the request. The result has an exam, and an audit if asked; or an error."""
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch

    torch.set_num_threads(1)
    limit(request["memory"], request["seconds"])
    _forbid(request["evidence"])
    try:
        result = _measured(request)
    except KcardError as error:  # the worker reads others from the traceback
        result = {"error": one_line(error), "final": isinstance(error, CardError)}
    Path(RESULT).write_text(json.dumps(result), encoding="utf-8")


def _measured(request: dict[str, Any]) -> dict[str, Any]:
    from kcard.api.audit import audit
    from kcard.api.exam import exam

    given = {"limit": request["questions"], "seed": request["seed"], "output": Path("written.json")}
    card = Path(request["card"])
    result = {"exam": exam(card, **given).to_json()}
    if request["evidence"]:
        result["audit"] = audit(card, evidence=request["evidence"], engine=(), **given).to_json()
    return result


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


def _forbid(evidence: list[str]) -> None:
    from kcard.cards.format.importing.unpickling import guard
    from kcard.selectors.evidence.registry import LOCAL, names

    elsewhere = {*names()} - {LOCAL}
    if not any(spec.partition(":")[0] in elsewhere for spec in evidence):
        guard(libraries=True)


if __name__ == "__main__":
    main()
