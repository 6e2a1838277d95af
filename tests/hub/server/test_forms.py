"""What people do in a browser: repositories, tokens, organisations, access, administration."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from sqlalchemy import update

from kcard.hub.db.models import Version
from kcard.hub.server.dependencies import ServerOptions
from kcard.manifest import Manifest, seal
from tests.hub.server.browser_session import Browser, hub_for_browsers, text
from tests.hub.shared_hub import Shared, running
from tests.hub.stand import pending_bytes

HEADER = b'{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}'
WEIGHTS = len(HEADER).to_bytes(8, "little") + HEADER + b"x" * 8


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with hub_for_browsers(tmp_path_factory.mktemp("hub"), exam_required=False) as shared:
        shared.create("ada/hidden", private=True)
        yield shared


# --- repositories ---------------------------------------------------------------------------------------------------


def test_repository_is_created_hidden_moved_and_deleted(shared: Shared, bob: Browser) -> None:
    sent = {"owner": "bob", "name": "fresh", "type": "dataset", "visibility": "private"}
    assert bob.send("/new", sent).headers["location"] == "/datasets/bob/fresh/upload"
    assert shared.hub.repositories.get("dataset", "bob/fresh").private
    here = "/datasets/bob/fresh/settings"
    bob.open(here)
    bob.send(here, {"visibility": "public", "gated": "auto"})
    changed = shared.hub.repositories.get("dataset", "bob/fresh")
    assert (changed.private, changed.gated) == (False, "auto")
    answer = bob.send(here + "/move", {"to": "lab/renamed"})
    assert answer.headers["location"] == "/datasets/lab/renamed/settings?saved=1"
    there = "/datasets/lab/renamed/settings"
    answer = bob.send(there + "/delete", {"confirm": "renamed"})
    assert answer.status_code == 400
    assert 'value="renamed"' in answer.text
    assert bob.send(there + "/delete", {"confirm": "lab/renamed"}).headers["location"] == "/lab"
    bob.open("/datasets/lab/renamed", 404)


@pytest.mark.parametrize(
    ("sent", "field", "status"),
    [
        ({"owner": "bob", "name": "taken", "visibility": "public"}, "name", 409),
        ({"owner": "bob", "name": "not a name", "visibility": "public"}, "name", 400),
        ({"owner": "ada", "name": "mine", "visibility": "public"}, "name", 403),
    ],
)
def test_repository_that_can_not_be_created_is_explained(
    shared: Shared, bob: Browser, sent: dict[str, str], field: str, status: int
) -> None:
    if sent["name"] == "taken":
        shared.create("bob/taken")
    answer = bob.send("/new", sent)
    assert answer.status_code == status
    assert f'id="{field}-error"' in answer.text
    assert f'value="{sent["name"]}"' in answer.text


# --- publishing -----------------------------------------------------------------------------------------------------


def card(folder: Path, name: str) -> dict[str, bytes]:
    folder.mkdir()
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Moons\n")
    (folder / "search.json").write_text('{"evidence": "wikipedia:en"}')
    seal(folder, Manifest(name=name, description="Moons of the planets", domain="science", kind="search"))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def upload(
    browser: Browser, path: str, files: dict[str, bytes], field: str = "files", **data: str
) -> httpx.Response:
    sent = [(field, (name, content)) for name, content in files.items()]
    return browser.send(path, data, files=sent)


def test_card_is_published_by_form(shared: Shared, bob: Browser, tmp_path: Path) -> None:
    shared.create("bob/moons")
    answer = upload(bob, "/bob/moons/upload", card(tmp_path / "card", "moons"), title="First", tag="v1")
    assert answer.headers["location"] == "/bob/moons", text(answer)
    page = bob.open("/bob/moons")
    assert "Moons of the planets" in page
    assert 'href="/bob/moons/tree/v1"' in page
    repository = shared.hub.repositories.get("model", "bob/moons")
    assert [(found.tag, found.author) for found in shared.hub.publications.list(repository)] == [
        ("v1", "bob")
    ]
    assert shared.hub.events.list(1, action="card.published")[0].actor == "bob"


def test_folder_is_uploaded_without_its_own_name(shared: Shared, bob: Browser) -> None:
    shared.create("bob/folder")
    files = {"draft/a.txt": b"a", "draft/index/b.json": b"{}"}
    assert upload(bob, "/bob/folder/upload", files, "folder", into="/deep/").status_code == 303
    repository = shared.hub.repositories.get("model", "bob/folder")
    tree = shared.hub.commits.tree(repository, shared.hub.refs.resolve(repository, "main"))
    assert set(tree) == {".gitattributes", "deep/a.txt", "deep/index/b.json"}


def test_large_and_binary_files_become_large_files(shared: Shared, bob: Browser) -> None:
    shared.create("bob/large")
    files = {"model.safetensors": WEIGHTS, "big.txt": b"line\n" * 1_000_000, "small.txt": b"x"}
    assert upload(bob, "/bob/large/upload", files).status_code == 303
    repository = shared.hub.repositories.get("model", "bob/large")
    tree = shared.hub.commits.tree(repository, shared.hub.refs.resolve(repository, "main"))
    assert {path: entry.lfs for path, entry in tree.items() if path[0] != "."} == {
        "model.safetensors": True,
        "big.txt": True,
        "small.txt": False,
    }
    assert shared.http().get("/bob/large/resolve/main/big.txt").content == files["big.txt"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.bin", b"x"),
        ("run.py", b"print()"),
        ("page.html", b"<script>"),
        ("../up.txt", b"x"),
        ("/etc/passwd.txt", b"x"),
        ("a\\b.txt", b"x"),
        ("notes.txt", b"\x80\x04\x95" + b"x" * 100),
        ("config.json", b'{"auto_map": {"AutoModel": "x.Y"}}'),
    ],
)
def test_form_refuses_what_a_commit_refuses(shared: Shared, bob: Browser, name: str, content: bytes) -> None:
    repository = shared.create(f"bob/refuses-{hashlib.sha256(name.encode()).hexdigest()[:8]}")
    answer = upload(
        bob, f"/{repository.name}/upload", {name: content, "ok.txt": b"y"}, title="Kept title", tag="v7"
    )
    assert answer.status_code == 400
    assert 'id="files-error"' in answer.text
    assert 'value="Kept title"' in answer.text
    assert 'value="v7"' in answer.text
    assert shared.hub.refs.resolve(repository, "main") == repository.head


def test_form_that_is_too_large_is_refused_before_it_is_read(shared: Shared) -> None:
    shared.create("bob/small")
    with running(shared.hub, ServerOptions(max_form=10_000)) as url:
        browser = Browser(replace(shared, url=url))
        browser.log_in("bob")
        browser.open("/bob/small/upload")
        answer = upload(browser, "/bob/small/upload", {"a.txt": b"x" * 20_000})
        assert answer.status_code == 413
        assert "the limit is 10000" in text(answer)
        assert upload(browser, "/bob/small/upload", {"a.txt": b"x" * 5_000}).status_code == 303


def test_form_with_too_many_files_stores_nothing(shared: Shared, bob: Browser) -> None:
    repository = shared.create("bob/many")
    answer = upload(bob, "/bob/many/upload", {f"{number}.txt": b"x" for number in range(101)})
    assert answer.status_code == 400
    assert "Maximum number of files is 100" in text(answer)
    assert shared.hub.refs.resolve(repository, "main") == repository.head


def test_form_over_the_quota_stores_nothing(shared: Shared, bob: Browser) -> None:
    shared.hub.accounts.add_organisation("tiny", owner="bob", quota=3_000)
    shared.create("tiny/full")
    answer = upload(bob, "/tiny/full/upload", {"big.safetensors": b"x" * 4_000})
    assert answer.status_code == 413
    assert "Quota of tiny exceeded" in text(answer)
    account = shared.hub.accounts.get("bob").id
    assert pending_bytes(shared.hub.database, account) == 0


def test_large_file_that_is_refused_is_not_stored(shared: Shared, bob: Browser) -> None:
    shared.create("bob/broken")
    account, content = shared.hub.accounts.get("bob").id, b"no tensors" * 100
    before = pending_bytes(shared.hub.database, account)
    answer = upload(bob, "/bob/broken/upload", {"ok.safetensors": WEIGHTS, "model.safetensors": content})
    assert answer.status_code == 400
    assert pending_bytes(shared.hub.database, account) == before
    assert not shared.hub.blobs.holds(hashlib.sha256(content).hexdigest())


def test_card_without_an_exam_is_committed_and_the_reason_is_shown(shared: Shared, bob: Browser) -> None:
    shared.create("bob/draft")
    manifest = {"kcard.json": json.dumps({"name": "draft"}).encode(), "README.md": b"# Draft"}
    answer = upload(bob, "/bob/draft/upload", manifest, tag="v1")
    assert answer.status_code == 400
    assert "2 files committed, not published" in text(answer)
    assert 'id="tag-error"' in answer.text
    assert "Draft" in bob.open("/bob/draft")


def test_form_without_a_file_and_malformed_forms_are_explained(shared: Shared, bob: Browser) -> None:
    shared.create("bob/empty")
    answer = bob.send("/bob/empty/upload", files=[("files", ("", b""))])
    assert answer.status_code == 400
    assert "no file was chosen" in text(answer)
    headers = {"Origin": shared.url, "Content-Type": "multipart/form-data; boundary=x"}
    for body in (
        b"",
        b"--x\r\n",
        b"--y\r\n\r\n",
        b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1',
    ):
        assert bob.http.post("/bob/empty/upload", content=body, headers=headers).status_code in {400, 403}
    headers["Content-Type"] = "text/plain"
    assert bob.http.post("/bob/empty/upload", content=b"x", headers=headers).status_code == 403


def test_readme_is_edited_as_a_commit(shared: Shared, bob: Browser) -> None:
    shared.create("bob/readme")
    shared.put("bob/readme", {"README.md": b"---\nlicense: mit\n---\n# Old & <b>bold</b>\n"})
    page = bob.open("/bob/readme/edit")
    assert "# Old &amp; &lt;b&gt;bold&lt;/b&gt;" in page
    parent = re.search(r'name="parent" value="([0-9a-f]{40})"', page)
    assert parent is not None
    sent = {
        "text": "---\r\nlicense: apache-2.0\r\n---\r\n# New\r\n",
        "title": "Say more",
        "parent": parent[1],
    }
    assert bob.send("/bob/readme/edit", sent).headers["location"] == "/bob/readme"
    assert (
        shared.http().get("/bob/readme/resolve/main/README.md").text
        == "---\nlicense: apache-2.0\n---\n# New\n"
    )
    assert "Say more" in bob.open("/bob/readme")
    late = bob.send("/bob/readme/edit", sent | {"text": "# Mine"})
    assert late.status_code == 412
    assert "# Mine" in late.text
    head = re.search(r'name="parent" value="([0-9a-f]{40})"', late.text)
    assert head is not None
    assert head[1] != parent[1]
    assert bob.send("/bob/readme/edit", {"text": "# Mine", "parent": head[1]}).status_code == 303
    wrong = bob.send("/bob/readme/edit", {"text": "---\nlicense: [\n---\n"})
    assert wrong.status_code == 400
    assert "license: [" in wrong.text
    assert 'id="text-error"' in wrong.text


def test_readers_publish_nothing(shared: Shared) -> None:
    shared.create("bob/public")
    shared.hub.accounts.set_member("lab", "dan", "read")
    shared.create("lab/public")
    dan = Browser(shared).log_in("dan")
    for name in ("bob/public", "lab/public"):
        page = dan.open(f"/{name}")
        for path in ("upload", "edit", "settings"):
            assert f'href="/{name}/{path}"' not in page
            dan.open(f"/{name}/{path}", 403)
        assert upload(dan, f"/{name}/upload", {"a.txt": b"x"}).status_code == 403
        assert dan.send(f"/{name}/edit", {"text": "x"}).status_code == 403
        assert dan.send(f"/{name}/publish", {"tag": "v1"}).status_code == 403
        assert dan.send(f"/{name}/settings/delete", {"confirm": name}).status_code == 403
    shared.hub.accounts.set_member("lab", "dan", None)


# What people do in a browser: tokens, organisations, access, administration.


def works(shared: Shared, token: str) -> bool:
    answer = shared.http().get("/api/whoami-v2", headers={"Authorization": f"Bearer {token}"})
    return answer.status_code == 200


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
    reading.open("/settings/tokens")
    assert reading.send("/settings/tokens", {"scope": "write", "days": "30"}).status_code == 403
    assert reading.send("/settings/tokens", {"scope": "read", "days": "30"}).status_code == 403
    token = shared.hub.tokens.create("bob", name="two days", days=2)
    short = Browser(shared)
    short.open("/login")
    short.send("/login", {"name": "bob", "token": token})
    short.open("/settings/tokens")
    answer = short.send("/settings/tokens", {"scope": "read", "days": "30"})
    assert answer.status_code == 400
    assert "expires at" in text(answer)
    bound = shared.hub.tokens.create("bob", name="one card", repository=shared.create("bob/one").name)
    only = Browser(shared)
    only.open("/login")
    only.send("/login", {"name": "bob", "token": bound})
    only.open("/settings/tokens")
    assert only.send("/settings/tokens", {"scope": "read", "days": "30"}).status_code == 403
    assert only.send("/settings/tokens/revoke", {"name": "write"}).status_code == 403
    assert only.send("/new", {"owner": "bob", "name": "x", "visibility": "public"}).status_code == 403


# --- organisations --------------------------------------------------------------------------------------------------


def test_organisation_is_created_gets_members_and_is_left(shared: Shared, bob: Browser) -> None:
    answer = bob.send("/settings/organizations", {"name": "guild", "fullname": "The Guild"})
    assert answer.headers["location"] == "/organizations/guild"
    bob.send("/organizations/guild/members", {"user": "dan", "role": "read"})
    assert shared.hub.accounts.members("guild") == {"bob": "admin", "dan": "read"}
    bob.send("/organizations/guild/members", {"user": "dan", "role": "admin"})
    dan = Browser(shared).log_in("dan")
    dan.open("/organizations/guild")
    dan.send("/organizations/guild/members", {"user": "bob", "role": "none"})
    assert shared.hub.accounts.members("guild") == {"dan": "admin"}
    answer = dan.send("/organizations/guild/leave")
    assert answer.status_code == 403
    assert "only administrator" in text(answer)
    dan.send("/organizations/guild/members", {"user": "cleo", "role": "admin"})
    assert dan.send("/organizations/guild/leave").status_code == 303
    assert shared.hub.accounts.members("guild") == {"cleo": "admin"}


def test_members_without_the_role_change_nothing(shared: Shared) -> None:
    cleo = Browser(shared).log_in("cleo")
    page = cleo.open("/organizations/lab")
    assert "bob" in page
    assert "Add a member" not in page
    assert cleo.send("/organizations/lab/members", {"user": "cleo", "role": "admin"}).status_code == 403
    assert cleo.send("/organizations/lab", {"description": "mine"}).status_code == 403
    assert shared.hub.accounts.members("lab")["cleo"] == "write"


def test_nobody_collects_quotas_by_creating_organisations(shared: Shared) -> None:
    dan = Browser(shared).log_in("dan")
    dan.open("/settings/organizations")
    status = [dan.send("/settings/organizations", {"name": f"many{n}"}).status_code for n in range(11)]
    assert status == [303] * 10 + [403]


def test_pages_of_accounts_have_their_description_and_readable_cards(shared: Shared, bob: Browser) -> None:
    shared.hub.accounts.add_user("erin")
    shared.create("lab/open")
    shared.create("lab/hidden", private=True)
    bob.send("/organizations/lab", {"fullname": "The Lab", "description": "We study\nmoons."})
    page = bob.open("/LAB")
    for part in ("The Lab", "We study\nmoons.", 'href="/lab/open"', 'href="/lab/hidden"', "cleo"):
        assert part in page
    anyone = Browser(shared).open("/lab")
    assert "lab/open" in anyone
    assert "lab/hidden" not in anyone
    assert "cleo" not in anyone
    # Accounts are not told to strangers: one without public cards looks like none.
    for name in ("erin", "nobody"):
        assert f"Page '{name}' not found" in text(Browser(shared).http.get(f"/{name}"))
    assert "has no cards" in bob.open("/erin")


# --- access ---------------------------------------------------------------------------------------------------------


def test_access_is_asked_for_with_a_note_and_granted(shared: Shared, bob: Browser) -> None:
    shared.create("bob/gated", gated="manual")
    shared.put("bob/gated", {"README.md": b"# Inside"})
    dan = Browser(shared)
    assert "/login?next=%2Fbob%2Fgated" in dan.open("/bob/gated")
    dan.log_in("dan")
    assert 'name="note"' in dan.open("/bob/gated")
    assert dan.send("/bob/gated/access", {"note": "x" * 2001}).status_code == 400
    answer = dan.send("/bob/gated/access", {"note": "For my thesis\r\non moons"})
    assert answer.headers["location"] == "/bob/gated"
    assert "Requests for access (1)" in bob.open("/bob/gated")
    assert "has not answered yet" in dan.open("/bob/gated")
    assert "Inside" not in dan.open("/bob/gated")
    page = bob.open("/bob/gated/access")
    assert "For my thesis\non moons" in page
    assert "Grant access to dan" in page
    assert dan.send("/bob/gated/access/answer", {"user": "dan", "state": "granted"}).status_code == 403
    assert bob.send("/bob/gated/access/answer", {"user": "dan", "state": "rejected"}).status_code == 303
    assert "rejected your request" in dan.open("/bob/gated")
    bob.send("/bob/gated/access/answer", {"user": "dan", "state": "granted"})
    assert "Inside" in dan.open("/bob/gated")
    assert shared.hub.repositories.requests(shared.hub.repositories.get("model", "bob/gated"))[0].note
    answer = bob.send("/bob/gated/access/answer", {"user": "nobody", "state": "granted"})
    assert answer.status_code == 404
    assert 'id="user-error"' in answer.text


# --- administration -------------------------------------------------------------------------------------------------


def test_administration_is_for_administrators(shared: Shared, bob: Browser) -> None:
    for path in ("accounts", "accounts/bob", "quotas", "quarantine", "log"):
        bob.open(f"/settings/hub/{path}", 403)
        assert (
            Browser(shared).http.get(f"/settings/hub/{path}").headers["location"].startswith("/login?next=")
        )
    assert bob.send("/settings/hub/accounts", {"name": "mallory", "admin": "1"}).status_code == 403
    assert bob.send("/settings/hub/accounts/bob", {"admin": "1"}).status_code == 403
    assert bob.send("/settings/hub/quarantine", {"threshold": "1"}).status_code == 403


def test_administrator_adds_changes_and_disables_accounts(shared: Shared, admin: Browser) -> None:
    answer = admin.send("/settings/hub/accounts", {"name": "frida", "fullname": "Frida", "email": "f@x.org"})
    token = read_token(answer.text)
    assert works(shared, token)
    assert "frida" in admin.open("/settings/hub/accounts?q=FRI")
    assert "bob" not in admin.open("/settings/hub/accounts?q=fri").split("</style>")[1]
    here = "/settings/hub/accounts/frida"
    assert admin.send(here, {"fullname": "Frida K", "quota": "12MB"}).status_code == 303
    account = shared.hub.accounts.get("frida")
    assert (account.fullname, account.quota, account.email) == ("Frida K", 12_000_000, "f@x.org")
    assert 'value="12.0 MB"' in admin.open(here)
    wrong = admin.send(here, {"quota": "a lot", "fullname": "Kept"})
    assert wrong.status_code == 400
    assert 'value="a lot"' in wrong.text
    assert shared.hub.accounts.get("frida").fullname == "Frida K"
    admin.send(here, {"fullname": "Frida K", "disabled": "1"})
    assert not works(shared, token)
    assert admin.send(here + "/revoke", {"token": "cli"}).status_code == 303
    assert shared.hub.tokens.list("frida") == []
    again = admin.send("/settings/hub/accounts", {"name": "FRIDA", "fullname": "Kept"})
    assert again.status_code == 409
    assert 'value="Kept"' in again.text


def test_last_administrator_stays(shared: Shared, admin: Browser) -> None:
    answer = admin.send("/settings/hub/accounts/ada", {"fullname": "Ada"})
    assert answer.status_code == 403
    assert 'id="rights-error"' in answer.text
    assert shared.hub.accounts.get("ada").admin


def test_accounts_and_events_are_turned_page_by_page(admin: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kcard.hub.server.web.admin.ROWS", 2)
    monkeypatch.setattr("kcard.hub.server.web.admin.ROWS", 5)
    for start, pattern in (
        ("/settings/hub/accounts", r'<a href="/settings/hub/accounts/([^"]+)">'),
        ("/settings/hub/log?action=account.created", r"account\.created</td><td>([^<]+)<"),
    ):
        seen, path = [], start
        while path:
            page = admin.open(path)
            seen += re.findall(pattern, page)
            turn = re.search(r'rel="next" href="([^"]+)"', page)
            path = turn[1].replace("&amp;", "&") if turn else ""
        assert {"ada", "bob", "lab"} <= set(seen)
        assert len(seen) == len(set(seen)), start


def test_event_log_is_filtered(admin: Browser, bob: Browser) -> None:
    bob.send("/settings", {"fullname": "Bob", "description": "A person"})
    page = admin.open("/settings/hub/log?actor=bob&action=account.updated&target=bob")
    assert "account.updated" in page
    assert "A person" not in page
    assert "No event matches" in admin.open("/settings/hub/log?actor=nobody&before=x")


def test_threshold_is_set_and_quarantined_cards_are_listed(
    shared: Shared, admin: Browser, bob: Browser, tmp_path: Path
) -> None:
    shared.create("bob/false")
    upload(bob, "/bob/false/upload", card(tmp_path / "card", "false"), tag="v1")
    with shared.hub.database.write() as connection:
        connection.execute(update(Version).values(declared_factuality=0.2, examined=True))
    assert "The quarantine is off" in admin.open("/settings/hub/quarantine")
    assert admin.send("/settings/hub/quarantine", {"threshold": "0.5"}).status_code == 303
    page = admin.open("/settings/hub/quarantine")
    assert "bob/false@v1" in page
    assert ">.20<" in page
    for wrong in ("2", "x", "nan"):
        answer = admin.send("/settings/hub/quarantine", {"threshold": wrong})
        assert answer.status_code == 400
        assert f'value="{wrong}"' in answer.text
    admin.send("/settings/hub/quarantine", {"threshold": "", "coverage": "0.25"})
    assert (shared.hub.registry.quarantine.threshold, shared.hub.registry.quarantine.coverage) == (None, 0.25)
    assert admin.send("/settings/hub/quarantine", {"coverage": "2"}).status_code == 400
    assert 'value="0.25"' in admin.open("/settings/hub/quarantine")


def test_quotas_show_who_holds_what(shared: Shared, admin: Browser) -> None:
    shared.hub.accounts.add_user("gina", quota=1_000)
    shared.create("gina/data")
    page = admin.open("/settings/hub/quotas")
    assert "gina" in page
    assert re.search(r"gina</a>.*?>\d+ B</td>.*?1 kB.*?>\d+ %</td>", page, re.DOTALL)
