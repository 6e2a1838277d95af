"""What people do in a browser: tokens, access."""

import re
from collections.abc import Iterator

import pytest

from tests.hub.server.browser_session import Browser, hub_for_browsers, text
from tests.hub.shared_hub import Shared


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with hub_for_browsers(tmp_path_factory.mktemp("hub"), exam_required=False) as shared:
        shared.create("ada/hidden", private=True)
        yield shared


def works(shared: Shared, token: str) -> bool:
    return shared.http(token=token).get("/api/whoami-v2").status_code == 200


def read_token(page: str) -> str:
    """The token that a page shows once."""
    match = re.search(r'class="shown-once">(kc_[^<]+)<', page)
    assert match is not None
    return match[1]


# --- tokens ---------------------------------------------------------------------------------------------------------


def test_token_is_shown_once_works_with_the_api_and_ends_when_revoked(shared: Shared, bob: Browser) -> None:
    answer = bob.send("/settings/tokens", {"name": "laptop", "scope": "read", "days": "30"})
    token = read_token(answer.text)
    assert answer.headers["cache-control"] == "no-store"
    assert works(shared, token)
    assert token not in bob.open("/settings/tokens")
    stored = next(each for each in shared.hub.tokens.list("bob") if each.name == "laptop")
    assert stored.scope == "read"
    assert stored.expires is not None
    assert (stored.expires - stored.created).days == 30
    assert bob.send("/settings/tokens/revoke", {"name": "laptop"}).status_code == 303
    assert not works(shared, token)


def test_token_may_be_limited_to_a_repository(shared: Shared, bob: Browser) -> None:
    shared.create("bob/bound")
    sent = {"name": "bound", "scope": "write", "days": "never", "repository": "bob/bound"}
    read_token(bob.send("/settings/tokens", sent).text)
    token = next(each for each in shared.hub.tokens.list("bob") if each.name == "bound")
    assert (token.repository, token.expires) == ("bob/bound", None)


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"name": "write", "scope": "read", "days": "30"}, "name"),
        ({"name": "n", "scope": "admin", "days": "30"}, "scope"),
        ({"name": "n", "scope": "everything", "days": "30"}, "scope"),
        ({"name": "n", "scope": "read", "days": "31"}, "days"),
        ({"name": "n", "scope": "read", "days": "30", "repository": "no/where"}, "repository"),
        ({"name": "n", "scope": "read", "days": "30", "repository": "ada/hidden"}, "repository"),
    ],
)
def test_wrong_token_is_explained_beside_its_field(
    shared: Shared, bob: Browser, sent: dict[str, str], field: str
) -> None:
    before = shared.hub.tokens.list("bob")
    answer = bob.send("/settings/tokens", sent)
    assert 400 <= answer.status_code < 500
    assert shared.hub.tokens.list("bob") == before
    box = re.search(rf'<(?:input|select) id="{field}"[^>]*>', answer.text)
    assert box is not None
    assert f'aria-describedby="{field}-error' in box[0]
    assert 'aria-invalid="true"' in box[0]
    assert f'id="{field}-error"' in answer.text
    assert f'value="{sent["name"]}"' in answer.text
    assert "<title>Error: " in answer.text


def test_session_creates_no_token_that_may_do_more_or_lasts_longer(shared: Shared) -> None:
    reading = Browser(shared).log_in("bob:read")
    assert reading.send("/settings/tokens", {"scope": "write", "days": "30"}).status_code == 403
    assert reading.send("/settings/tokens", {"scope": "read", "days": "30"}).status_code == 403
    token = shared.hub.tokens.create("bob", name="two days", days=2)
    short = Browser(shared).log_in("bob", token)
    answer = short.send("/settings/tokens", {"scope": "read", "days": "30"})
    assert answer.status_code == 400
    assert "expires at" in text(answer)
    bound = shared.hub.tokens.create("bob", name="one card", repository=shared.create("bob/one").name)
    only = Browser(shared).log_in("bob", bound)
    assert only.send("/settings/tokens", {"scope": "read", "days": "30"}).status_code == 403
    assert only.send("/settings/tokens/revoke", {"name": "write"}).status_code == 403


# --- access ---------------------------------------------------------------------------------------------------------


def test_access_is_asked_for_with_a_note_and_granted(shared: Shared) -> None:
    shared.create("bob/gated", gated="manual", files={"README.md": b"# Inside"})
    dan = Browser(shared)
    assert "/login?next=%2Fbob%2Fgated" in dan.open("/bob/gated")
    dan.log_in("dan")
    assert 'name="note"' in dan.open("/bob/gated")
    assert dan.send("/bob/gated/access", {"note": "x" * 2001}).status_code == 400
    answer = dan.send("/bob/gated/access", {"note": "For my thesis\r\non moons"})
    assert answer.headers["location"] == "/bob/gated"
    assert "has not answered yet" in dan.open("/bob/gated")
    assert "Inside" not in dan.open("/bob/gated")
    [request] = shared.hub.repositories.requests(shared.hub.repositories.get("model", "bob/gated"))
    assert (request.account, request.note) == ("dan", "For my thesis\non moons")
    owner = shared.api("bob")
    owner.reject_access_request("bob/gated", "dan", rejection_reason=None)
    assert "rejected your request" in dan.open("/bob/gated")
    owner.accept_access_request("bob/gated", "dan")
    assert "Inside" in dan.open("/bob/gated")
