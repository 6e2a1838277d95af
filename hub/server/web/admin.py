"""Pages for administrators: overview, accounts, quotas, quarantine, log."""

from dataclasses import dataclass
from typing import get_args
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response

from kcard.hub.accounts import Action
from kcard.hub.db.models import Account
from kcard.hub.errors import Invalid
from kcard.hub.server.dependencies import AdministratorDep, HubDep, OptionsDep, Segment
from kcard.hub.server.web.account import SAVED, update_profile
from kcard.hub.server.web.render import Form, FormDep, page
from kcard.hub.services import HubServices
from kcard.hub.values import format_score
from kcard.io import parse_size, shown_size

# Numbers of rows in links and hidden fields.

LARGEST = 2**31 - 1  # of an integer column


def row_number(text: str) -> int:
    """Return the number, at most LARGEST; LARGEST for anything else."""
    return min(int(text), LARGEST) if text.isascii() and text.isdigit() and len(text) < 11 else LARGEST


overview_router = APIRouter(include_in_schema=False)

LATEST = 10


@overview_router.get("/settings/hub")
def overview_page(hub: HubDep, _: AdministratorDep) -> Response:
    """Show what each page of the administration is about, in figures, and the latest events."""
    accounts = hub.accounts.list()
    users = sum(account.kind == "user" for account in accounts)
    used = sum(account.used for account in accounts)
    largest = max(accounts, key=lambda account: account.used, default=None)
    threshold, quarantined = hub.registry.quarantine.threshold, len(hub.publications.quarantined(MOST))
    limit = "off: there is no threshold" if threshold is None else f"threshold {format_score(threshold)}"
    return page(
        "hub_overview.html",
        entries=[
            (ACCOUNTS_PATH, "Accounts", users, f"users, and {len(accounts) - users} organisations"),
            (
                "/settings/hub/quotas",
                "Quotas",
                shown_size(used),
                f"stored, most by {largest.name}" if largest is not None and largest.used else "stored",
            ),
            (
                QUARANTINE_PATH,
                "Quarantine",
                f"{quarantined}{'+' if quarantined == MOST else ''}",
                f"cards, {limit}",
            ),
        ],
        events=hub.events.list(LATEST, LARGEST),
    )


accounts_router = APIRouter(include_in_schema=False)

ACCOUNTS_PATH = "/settings/hub/accounts"
ONE = ACCOUNTS_PATH + "/{name}"
ROWS = 50


@accounts_router.get(ACCOUNTS_PATH)
def accounts_page(hub: HubDep, _: AdministratorDep, q: str = "", after: str = "") -> Response:
    """Show a page of the accounts whose name starts with `q`, and the form for a new user."""
    return render_accounts_page(hub, Form(), q.replace("\0", ""), after.replace("\0", ""))


@accounts_router.post(ACCOUNTS_PATH)
def add(hub: HubDep, admin: AdministratorDep, form: FormDep) -> Response:
    """Add a user, and show a token for them this one time."""
    with form.errors_at("name"):
        user = hub.accounts.add_user(
            form.text("name"),
            fullname=form.text("fullname"),
            email=form.text("email"),
            admin=form.is_checked("admin"),
            by=admin.name,
        )
        token = hub.tokens.create(user.name, scope="admin" if user.admin else "write", by=admin.name)
        return render_account_page(hub, user, Form(), token=token, done=f"{user.name} was added.")
    return render_accounts_page(hub, form)


@accounts_router.get(ONE)
def account_page(hub: HubDep, _: AdministratorDep, name: Segment, saved: str = "") -> Response:
    """Show an account with the forms that change it."""
    return render_account_page(hub, hub.accounts.get(name), Form(), done=SAVED if saved else "")


@accounts_router.post(ONE)
def save_account(hub: HubDep, admin: AdministratorDep, form: FormDep, name: Segment) -> Response:
    """Change texts, rights and quota."""
    account = hub.accounts.get(name)
    quota = account.quota
    with form.errors_at("quota"):
        quota = parse_size(form.text("quota")) if form.text("quota") else None
    if not form.errors:
        update_profile(hub, form, account, admin.name)
    if not form.errors:
        with form.errors_at("rights"):
            user = account.kind == "user"
            hub.accounts.update(
                account.name,
                admin=form.is_checked("admin") if user else None,
                disabled=form.is_checked("disabled"),
                quota=quota,
                by=admin.name,
            )
            return RedirectResponse(f"{ACCOUNTS_PATH}/{account.name}?saved=1", 303)
    return render_account_page(hub, account, form)


@accounts_router.post(ONE + "/token")
def create_token(hub: HubDep, admin: AdministratorDep, form: FormDep, name: Segment) -> Response:
    """Create a token of scope write for a user, who needs one to log in, and show it this one time."""
    account = hub.accounts.get(name)
    with form.errors_at(""):
        token = hub.tokens.create(account.name, scope="write", by=admin.name)
        return render_account_page(hub, account, Form(), token=token)
    return render_account_page(hub, account, form)


@accounts_router.post(ONE + "/revoke")
def revoke(hub: HubDep, admin: AdministratorDep, form: FormDep, name: Segment) -> Response:
    """Revoke a token of a user."""
    account = hub.accounts.get(name)
    hub.tokens.revoke(account.name, form.values.get("token", ""), by=admin.name)
    return RedirectResponse(f"{ACCOUNTS_PATH}/{account.name}?saved=1", 303)


def render_accounts_page(hub: HubServices, form: Form, q: str = "", after: str = "") -> Response:
    accounts = hub.accounts.page(q, after, ROWS + 1)
    following = accounts[ROWS - 1].name if len(accounts) > ROWS else None
    return page(
        "hub_accounts.html",
        form.status,
        form=form,
        accounts=accounts[:ROWS],
        following=following,
        q=q,
        after=after,
    )


def render_account_page(
    hub: HubServices, account: Account, form: Form, *, token: str = "", done: str = ""
) -> Response:
    quota = ""  # as the field accepts it, without rounding
    if account.quota is not None:
        short = shown_size(account.quota)
        quota = short if parse_size(short) == account.quota else str(account.quota)
    return page(
        "hub_account.html",
        form.status,
        form=form,
        account=account,
        used=account.used,
        tokens=hub.tokens.list(account.name),
        quota=quota,
        new_token=token,
        done=done,
    )


# Storage by account.

quotas_router = APIRouter(include_in_schema=False)

MOST = 200


@dataclass(frozen=True)
class Storage:
    """The storage of an account, in bytes; `limit` None: no limit."""

    account: Account
    used: int
    limit: int | None

    @property
    def share(self) -> float | None:
        """The used share of the limit; None without one."""
        if self.limit is None:
            return None
        return self.used / self.limit if self.limit else 1.0


@quotas_router.get("/settings/hub/quotas")
def quotas_page(hub: HubDep, options: OptionsDep, _: AdministratorDep) -> Response:
    """Show the accounts that store most."""
    stored = [
        Storage(account, account.used, options.quota if account.quota is None else account.quota)
        for account in hub.accounts.list()
    ]
    largest = sorted(stored, key=lambda storage: (-storage.used, storage.account.name))
    return page(
        "hub_quotas.html",
        rows=largest[:MOST],
        more=max(0, len(largest) - MOST),
        total=sum(storage.used for storage in stored),
        default=options.quota,
    )


# The quarantine: the threshold, and the cards below it.

quarantine_router = APIRouter(include_in_schema=False)

QUARANTINE_PATH = "/settings/hub/quarantine"


@quarantine_router.get(QUARANTINE_PATH)
def quarantine_page(hub: HubDep, _: AdministratorDep, saved: str = "") -> Response:
    """Show the threshold and the quarantined cards."""
    return render_quarantine_page(hub, Form(), SAVED if saved else "")


@quarantine_router.post(QUARANTINE_PATH)
def save(hub: HubDep, admin: AdministratorDep, form: FormDep) -> Response:
    """Set threshold and floor of coverage; an empty threshold turns the quarantine off, an empty floor stays."""
    with form.errors_at("coverage"):
        if (floor := _parse_share("coverage", form.text("coverage"))) is not None:
            hub.registry.quarantine.set_coverage(floor, by=admin.name)
        with form.errors_at("threshold"):
            hub.registry.quarantine.set(_parse_share("threshold", form.text("threshold")), by=admin.name)
            return RedirectResponse(f"{QUARANTINE_PATH}?saved=1", 303)
    return render_quarantine_page(hub, form)


def _parse_share(name: str, text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        raise Invalid(f"invalid {name} {text[:40]!r}: use a number from 0 to 1, such as 0.5") from None


def render_quarantine_page(hub: HubServices, form: Form, done: str = "") -> Response:
    return page(
        "hub_quarantine.html",
        form.status,
        form=form,
        threshold=hub.registry.quarantine.threshold,
        coverage=hub.registry.quarantine.coverage,
        summaries=hub.publications.quarantined(MOST),
        most=MOST,
        done=done,
    )


# The event log.

log_router = APIRouter(include_in_schema=False)

LOG_PATH = "/settings/hub/log"


@log_router.get(LOG_PATH)
def log_page(
    hub: HubDep, _: AdministratorDep, action: str = "", actor: str = "", target: str = "", before: str = ""
) -> Response:
    """Show events, latest first, by action, actor or target."""
    filters = {"action": action, "actor": actor, "target": target}
    filters = {key: value.replace("\0", "").strip() for key, value in filters.items()}
    events = hub.events.list(ROWS + 1, row_number(before), **{k: v or None for k, v in filters.items()})
    following = events[ROWS - 1].number if len(events) > ROWS else None
    query = {key: value for key, value in filters.items() if value}
    return page(
        "hub_log.html",
        events=events[:ROWS],
        filters=filters,
        actions=get_args(Action),
        first=f"{LOG_PATH}?{urlencode(query)}" if before else None,
        following=f"{LOG_PATH}?{urlencode({**query, 'before': following})}" if following else None,
    )
