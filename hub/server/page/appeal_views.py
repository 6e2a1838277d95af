"""What those who may change a card see about its quarantine: whether they may appeal, and the state of their appeal."""

from dataclasses import dataclass

from kcard.hub.repositories.appeals import Appeal
from kcard.hub.repositories.values import Mark
from kcard.hub.server.page.rights import Rights
from kcard.hub.shared import SharedHub

__all__ = ["AppealView", "appeal_view"]


@dataclass(frozen=True)
class AppealView:
    """The newest version of a card that is quarantined, or was before an appeal.

    number   of the version
    audited  whether an audit of this hub quarantines it; if not, its own exam does, which nobody can appeal against
    appeal   against the latest audit; None without one
    allowed  whether the visitor may appeal
    """

    number: int
    audited: bool
    appeal: Appeal | None
    allowed: bool


def appeal_view(hub: SharedHub, mark: Mark | None, rights: Rights) -> AppealView | None:
    """None for those who may not change the card, and for one that is neither quarantined nor appealed for."""
    if mark is None or not rights.writes:
        return None
    audit = None if mark.verified is None else mark.verified.audit
    appeal = None if audit is None else hub.registry.appeals.against(audit)
    if mark.quarantine is None and appeal is None:
        return None
    audited = mark.quarantine is not None and mark.quarantine.audit is not None
    number = int(mark.reference.rpartition("@v")[2])
    return AppealView(number, audited, appeal, rights.administers and audited and appeal is None)
