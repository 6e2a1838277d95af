"""Cards that an audit of the hub quarantined, for tests of pages."""

from pathlib import Path

from kcard.hub.audits import AuditFinding
from tests.hub.server.sample_cards import publish
from tests.hub.shared_hub import Shared

__all__ = ["finding", "quarantined"]


def finding(factuality: float) -> AuditFinding:
    return AuditFinding("minilm", None, "atlas", "ab" * 32, "own", "cd" * 32, 0, 0.8, factuality, "{}")


def quarantined(shared: Shared, folder: Path, name: str) -> None:
    """Publish a card in which an audit measures a factuality of 0.3; the threshold is 0.5."""
    shared.hub.registry.quarantine.set(0.5)
    shared.create(name)
    publish(shared, folder / name, name, "What tumours are like", "biomedical", factuality=0.9)
    shared.hub.registry.audits.add(shared.hub.registry.get(name), finding(0.3))
