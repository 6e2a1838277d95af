"""Cards that an audit of the hub quarantined, for tests of jobs and pages."""

from pathlib import Path

from kcard.hub.repositories.audits import AuditFinding
from kcard.hub.repositories.jobs import Claim
from tests.hub.server.sample_cards import publish
from tests.hub.shared_hub import Shared

__all__ = ["claimed", "finding", "quarantined"]


def finding(factuality: float) -> AuditFinding:
    return AuditFinding("minilm", None, "atlas", "ab" * 32, "own", "cd" * 32, 0, 0.8, factuality, "{}")


def claimed(shared: Shared) -> Claim:
    """The job that is due first."""
    claim = shared.hub.registry.jobs.claim("worker")
    assert claim is not None
    return claim


def quarantined(shared: Shared, folder: Path, name: str) -> None:
    """Publish a card in which an audit measures a factuality of 0.3; the threshold is 0.5."""
    shared.hub.registry.quarantine.set(0.5)
    shared.hub.registry.jobs.switch(True)
    shared.create(name)
    publish(shared, folder / name, name, "What tumours are like", "biomedical", factuality=0.9)
    shared.hub.registry.jobs.complete(claimed(shared), [finding(0.3)])
