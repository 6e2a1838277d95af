"""A card of many, as a worker audits it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kcard.bulk.piece import Piece

__all__ = ["audit_piece", "audited"]


def audit_piece(card: str, options: Mapping[str, Any]) -> Piece:
    """The piece that audits a published card (name@v2) or the one in a folder (an absolute path)."""
    return Piece(card, f"{__name__}:audited", {"card": card, "options": dict(options)})


def audited(card: str, options: Mapping[str, Any]) -> Any:
    """The audit as JSON has it. The hub does not keep it yet: a worker that is lost may do it twice."""
    from kcard.api.audit import audit

    found = Path(card) if Path(card).is_absolute() else card
    return json.loads(audit(found, keep=False, **options).to_json())
