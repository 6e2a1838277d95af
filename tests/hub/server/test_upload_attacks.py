"""Uploads and commits of those who want to stop the hub, fill its disk, or have what is not theirs."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from sqlalchemy import update

from kcard.hub import quotas
from kcard.hub.checks.content import ContentCandidate, ContentVerdict
from kcard.hub.db.models import Token, now
from kcard.hub.server import upload_checks as checking
from kcard.hub.server.dependencies import ServerOptions
from tests.hub.server.attacks import (
    commit,
    connect,
    digest,
    end_right,
    inline,
    large,
    lines,
    request_upload,
    wait_for,
)
from tests.hub.shared_hub import Shared, shared_hub

PART = 100_000
QUOTA = 1_000_000
SLOW = b"[" + b'"",' * (2 << 20) + b"1]"  # its check takes half a second or more


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with shared_hub(tmp_path_factory.mktemp("hub"), ServerOptions(part_size=PART)) as shared:
        for name in ("bob/target", "bob/other", "cleo/own", "dan/own", "lab/own"):
            shared.create(name)
        shared.create("bob/secret", private=True)
        yield shared


def action(shared: Shared, token: str, name: str, content: bytes, *, parts: bool = False) -> dict[str, Any]:
    """Where a token may upload content by LFS."""
    transfers = ["multipart" if parts else "basic"]
    return request_upload(shared.http(token=token), name, content, transfers=transfers)


def upload(shared: Shared, who: str, name: str, content: bytes) -> str:
    done = put(action(shared, shared.tokens[who], name, content)["href"], content)
    assert done.status_code == 200, done.text
    return digest(content)


def put(href: str, content: bytes) -> httpx.Response:
    return httpx.put(href, content=content, timeout=60)


def put_at_once(files: Iterable[tuple[str, bytes]]) -> list[int]:
    """The statuses of uploads at the same time, in order of their size."""
    with ThreadPoolExecutor() as pool:
        uploads = [pool.submit(put, href, content) for href, content in files]
    return sorted(upload.result().status_code for upload in uploads)


def charged(shared: Shared, name: str) -> int:
    with shared.hub.database.read() as connection:
        return quotas.charged_bytes(connection, shared.hub.accounts.get(name).id)


def on_disk(shared: Shared) -> int:
    root = shared.hub.blobs.partial.parent
    folders = [root / name for name in ("blobs", "parts", "partial")]
    return sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())


# --- checks ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths whose content is checked."""
    paths: list[str] = []
    judged = checking.judge_batch

    async def counting(batch: Sequence[tuple[str, ContentCandidate]]) -> list[ContentVerdict]:
        paths.extend(path for path, _ in batch)
        return await judged(batch)

    monkeypatch.setattr(checking, "judge_batch", counting)
    return paths


def test_a_blob_is_checked_once_however_often_it_is_committed(shared: Shared, checked: list[str]) -> None:
    sha256 = upload(shared, "bob", "bob/target", b'{"checked": "once"}')
    first = [large(f"{number}.json", sha256) for number in range(100)]
    assert commit(shared, "bob", "bob/target", *first).status_code == 200
    assert commit(shared, "bob", "bob/target", large("again.json", sha256)).status_code == 200
    assert checked == ["0.json"]


def test_a_refused_blob_is_not_checked_again(shared: Shared, checked: list[str]) -> None:
    sha256 = upload(shared, "bob", "bob/target", b'{"checked": ')
    answers = [commit(shared, "bob", "bob/target", large(path, sha256)) for path in ("a.json", "b.json")]
    assert [answer.status_code for answer in answers] == [400, 400]
    assert answers[1].json()["error"] == answers[0].json()["error"].replace("a.json", "b.json")
    assert checked == ["a.json"]


def test_a_verdict_holds_for_the_kind_of_file_that_was_checked(shared: Shared) -> None:
    sha256 = upload(shared, "bob", "bob/target", b'{"auto_map": {"AutoModel": "m.M"}}')
    assert commit(shared, "bob", "bob/target", large("a.txt", sha256)).status_code == 200
    assert commit(shared, "bob", "bob/target", large("kind.json", sha256)).status_code == 400
    assert commit(shared, "bob", "bob/target", large("kind.safetensors", sha256)).status_code == 400
    assert commit(shared, "bob", "bob/target", large("b.txt", sha256)).status_code == 200


def test_a_check_that_takes_too_long_is_killed(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    sha256 = upload(shared, "bob", "bob/target", SLOW)
    monkeypatch.setattr(checking, "BASE_SECONDS", 0.05)
    monkeypatch.setattr(checking, "BYTES_PER_SECOND", 1 << 40)
    refused = commit(shared, "bob", "bob/target", large("slow.json", sha256))
    assert refused.status_code == 400
    assert "slow.json took more than" in refused.json()["error"]
    assert shared.hub.verdicts.find([(sha256, "json")]) == {}
    monkeypatch.undo()
    assert commit(shared, "bob", "bob/target", large("slow.json", sha256)).status_code == 200


def test_a_check_is_repeated_if_its_process_was_killed(shared: Shared) -> None:
    content = SLOW + b"   "
    sha256 = upload(shared, "bob", "bob/target", content)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(commit, shared, "bob", "bob/target", large("killed.json", sha256))
        wait_for(lambda: busy_checks() != [])
        for process in busy_checks():
            os.kill(process, signal.SIGKILL)
        assert answer.result(60).status_code == 200, answer.result().text


def busy_checks() -> list[int]:
    """Processes that check content now."""
    processes = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    busy = []
    for process in processes:
        with suppress(OSError):
            stat = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            command = Path(f"/proc/{process}/cmdline").read_bytes()
            if int(stat[1]) == os.getpid() and stat[0] == "R" and b"anyio.to_process" in command:
                busy.append(process)
    return busy


def test_the_slow_checks_of_one_account_delay_no_other(shared: Shared) -> None:
    files = [SLOW + b" " * number for number in range(20, 26)]
    for content in files:
        upload(shared, "bob", "bob/target", content)
    address, headers = f"{shared.url}/api/models/bob/target/commit/main", shared.http("bob").headers

    def attack(content: bytes) -> None:
        body = lines(large(f"{len(content)}.json", digest(content)))
        httpx.post(address, content=body, headers=headers, timeout=120)

    with ThreadPoolExecutor(len(files)) as pool:
        attacks = [pool.submit(attack, content) for content in files]
        time.sleep(0.2)
        assert commit(shared, "dan", "dan/own", inline("a.txt", b"dan")).status_code == 200
        assert sum(each.done() for each in attacks) <= 3, "bob's commits take turns"


def test_a_check_ends_when_its_client_leaves(shared: Shared) -> None:
    content = SLOW + b" " * 9
    sha256 = upload(shared, "bob", "bob/target", content)
    body = lines(large("left.json", sha256))
    head = f"POST /api/models/bob/target/commit/main HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    head += f"Authorization: Bearer {shared.tokens['bob']}\r\n\r\n"
    with connect(shared.url) as line:
        line.sendall(head.encode() + body)
        time.sleep(0.2)
    assert commit(shared, "bob", "bob/target", inline("next.txt", b"next")).status_code == 200
    assert shared.hub.verdicts.find([(sha256, "json")]) == {}
    assert not shared.api().file_exists("bob/target", "left.json")


# --- quotas ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def limited(shared: Shared) -> Iterator[str]:
    """A namespace with a quota of which QUOTA bytes are left."""
    shared.hub.accounts.update("cleo", quota=charged(shared, "cleo") + QUOTA)
    yield "cleo"
    shared.hub.accounts.update("cleo", quota=None)


def test_parallel_uploads_store_no_more_than_the_quota(shared: Shared, limited: str) -> None:
    files = [os.urandom(QUOTA * 4 // 10) for _ in range(6)]
    hrefs = [action(shared, shared.tokens[limited], "cleo/own", content)["href"] for content in files]
    assert put_at_once(zip(hrefs, files, strict=True)) == [200, 200, 413, 413, 413, 413]
    assert sum(shared.hub.blobs.holds(digest(content)) for content in files) == 2


def test_uploads_that_stand_still_keep_what_they_reserved_and_give_it_back(
    shared: Shared, limited: str
) -> None:
    content = os.urandom(QUOTA * 6 // 10)
    to = urlsplit(action(shared, shared.tokens[limited], "cleo/own", content)["href"])
    request = f"PUT {to.path}?{to.query} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
    before = charged(shared, limited)
    with connect(to.geturl()) as line:
        line.sendall(request.encode() + content[:1000])
        wait_for(lambda: charged(shared, limited) == before + len(content))
        assert httpx.put(to.geturl(), content=content).status_code == 413, "the same file, at the same time"
    wait_for(lambda: charged(shared, limited) == before)
    assert httpx.put(to.geturl(), content=content).status_code == 200
    assert charged(shared, limited) == before + len(content)


def test_parts_are_reserved_and_charged_once_when_they_are_joined(shared: Shared, limited: str) -> None:
    before, content = charged(shared, limited), os.urandom(3 * PART)
    others = [os.urandom(5 * PART) for _ in range(3)]
    upload_ = action(shared, shared.tokens[limited], "cleo/own", content, parts=True)
    parts = [(upload_["header"][f"{n:05d}"], content[(n - 1) * PART : n * PART]) for n in (1, 2, 3)]
    for other in others:
        header = action(shared, shared.tokens[limited], "cleo/own", other, parts=True)["header"]
        parts += [(header[f"{n:05d}"], other[:PART]) for n in range(1, 6)]
    assert put_at_once(parts[:3]) == [200] * 3
    assert put_at_once(parts[3:]) == [200] * 7 + [413] * 8
    assert charged(shared, limited) == before + 10 * PART
    done = {"oid": digest(content), "parts": []}
    assert httpx.post(upload_["href"], json=done, timeout=60).status_code == 200
    assert httpx.post(upload_["href"], json=done, timeout=60).status_code == 200
    assert charged(shared, limited) == before + 10 * PART
    assert commit(shared, limited, "cleo/own", large("a.bib", digest(content))).status_code == 400
    assert shared.hub.blobs.holds(digest(content))


def test_inline_files_over_quota_are_not_stored(shared: Shared, limited: str) -> None:
    contents = [os.urandom(QUOTA * 3 // 10).hex().encode() for _ in range(4)]
    before = on_disk(shared)
    for number, content in enumerate(contents):
        commit(shared, limited, "cleo/own", inline(f"{number}.txt", content))
    assert on_disk(shared) - before <= QUOTA
    assert [shared.hub.blobs.holds(digest(content)) for content in contents] == [True, False, False, False]


def test_deleted_repositories_leave_nothing_on_the_disk(shared: Shared, limited: str) -> None:
    shared.create("cleo/kept")
    first = os.urandom(QUOTA // 10).hex().encode()
    assert commit(shared, limited, "cleo/kept", inline("kept.txt", first)).status_code == 200
    before = on_disk(shared)
    for turn in range(4):
        shared.create(f"cleo/{turn}")
        content = os.urandom(QUOTA * 3 // 10).hex().encode()
        files = (inline("a.txt", content), inline("kept.txt", first))
        assert commit(shared, limited, f"cleo/{turn}", *files).status_code == 200
        shared.api(limited).delete_repo(f"cleo/{turn}")
    assert on_disk(shared) == before
    assert shared.http().get("/cleo/kept/resolve/main/kept.txt").content == first


# --- possession and tickets -----------------------------------------------------------------------------------------


def test_a_quota_does_not_tell_that_somebody_else_has_a_file(shared: Shared) -> None:
    secret, unknown = os.urandom(3000), os.urandom(3000)
    sha256 = upload(shared, "bob", "bob/secret", secret)
    assert commit(shared, "bob", "bob/secret", large("a.parquet", sha256)).status_code == 400
    shared.put("bob/secret", {"model.safetensors": secret})
    messages = []
    for content in (secret, unknown):
        shared.hub.accounts.update("dan", quota=charged(shared, "dan") + 5000)
        upload(shared, "dan", "dan/own", content)
        answer = action(shared, shared.tokens["dan"], "dan/own", os.urandom(4000))
        messages.append(answer["error"]["message"])
        shared.hub.accounts.update("dan", quota=None)
    assert messages[0] == messages[1]


def test_a_token_of_one_repository_gets_nothing_that_was_uploaded_elsewhere(shared: Shared) -> None:
    bound = shared.hub.tokens.create("bob", name="bound", scope="write", repository="bob/target")
    content = b"for another repository " + os.urandom(8).hex().encode()
    sha256 = upload(shared, "bob", "bob/other", content)
    http, path = shared.http(token=bound), "/api/models/bob/target/commit/main"
    answers = [http.post(path, content=lines(large("a.txt", oid))) for oid in (sha256, "ab" * 32)]
    assert [answer.status_code for answer in answers] == [400, 400]
    assert answers[0].text.replace(sha256, "") == answers[1].text.replace("ab" * 32, "")
    assert "href" in action(shared, bound, "bob/target", content), "it is to be sent"


@pytest.mark.parametrize("ended", ["revoked", "disabled", "expired", "replaced"])
def test_tickets_end_with_their_token(shared: Shared, ended: str) -> None:
    name, content = f"ending-{ended}", os.urandom(PART + 10)
    token = shared.hub.tokens.create("dan", name=name, scope="write")
    whole, parts = (action(shared, token, "dan/own", content, parts=parts) for parts in (False, True))
    if ended == "disabled":
        shared.hub.accounts.update("dan", disabled=True)
    elif ended == "expired":
        with shared.hub.database.write() as connection:
            connection.execute(update(Token).where(Token.name == name).values(expires=now()))
    else:
        shared.hub.tokens.revoke("dan", name)
    if ended == "replaced":  # it may get the id of the revoked token
        shared.hub.tokens.create("dan", name=name, scope="write")
    answers = [
        httpx.put(whole["href"], content=content),
        httpx.put(parts["header"]["00001"], content=content[:PART]),
        httpx.post(parts["href"], json={"oid": digest(content)}),
    ]
    shared.hub.accounts.update("dan", disabled=False)
    assert [answer.status_code for answer in answers] == [401] * 3
    assert not shared.hub.blobs.holds(digest(content))


# --- what ends while a request is being sent -------------------------------------------------------------------------


@pytest.fixture
def cleo(shared: Shared, request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A token of cleo's, who may write in lab, and its name."""
    name = f"sending-{request.node.name}"[:90]
    yield shared.hub.tokens.create("cleo", name=name, scope="write"), name
    shared.hub.accounts.update("cleo", disabled=False)
    shared.hub.accounts.set_member("lab", "cleo", "write")


def interrupted(shared: Shared, content: bytes, end: Callable[[], None]) -> Iterator[bytes]:
    """A body, in whose middle something ends: once the hub receives it, after it has allowed it."""
    yield content[:10]
    wait_for(lambda: any(shared.hub.blobs.partial.glob("*/body")))  # the hub receives the body
    end()
    yield content[10:]


ENDS = {"token": 401, "account": 401, "role": 403}


@pytest.mark.parametrize("what", ENDS)
def test_a_commit_that_is_being_sent_ends_with_what_allowed_it(
    shared: Shared, cleo: tuple[str, str], what: str
) -> None:
    token, name = cleo
    head = shared.hub.refs.resolve(shared.hub.repositories.get("model", "lab/own"), "main")
    content = lines(inline("late.txt", os.urandom(8).hex().encode()))
    body = interrupted(shared, content, lambda: end_right(shared, what, name))
    answer = shared.http(token=token).post("/api/models/lab/own/commit/main", content=body)
    assert answer.status_code == ENDS[what], answer.text
    assert shared.hub.refs.resolve(shared.hub.repositories.get("model", "lab/own"), "main") == head


@pytest.mark.parametrize("what", ENDS)
def test_an_upload_that_is_being_sent_ends_with_what_allowed_it(
    shared: Shared, cleo: tuple[str, str], what: str
) -> None:
    token, name = cleo
    content = os.urandom(PART + 10)
    whole, parts = (action(shared, token, "lab/own", content, parts=parts) for parts in (False, True))
    before = on_disk(shared)
    answer = httpx.put(
        whole["href"], content=interrupted(shared, content, lambda: end_right(shared, what, name))
    )
    assert answer.status_code == ENDS[what], answer.text
    # What was allowed before is of no use any more.
    later = [
        httpx.put(parts["header"]["00001"], content=content[:PART]),
        httpx.post(parts["href"], json={"oid": digest(content)}),
    ]
    assert [answer.status_code for answer in later] == [ENDS[what]] * 2
    assert on_disk(shared) == before


def test_a_part_that_is_being_sent_ends_with_its_token(shared: Shared, cleo: tuple[str, str]) -> None:
    token, name = cleo
    content = os.urandom(PART + 10)
    parts = action(shared, token, "lab/own", content, parts=True)
    before = on_disk(shared)
    body = interrupted(shared, content[:PART], lambda: end_right(shared, "token", name))
    assert httpx.put(parts["header"]["00001"], content=body).status_code == 401
    assert on_disk(shared) == before


def test_paths_are_received_before_their_token_is_checked(shared: Shared) -> None:
    # Refused by its size, not by the missing token: the body was read first.
    address = f"{shared.url}/api/models/bob/secret/paths-info/main"
    assert httpx.post(address, content=b"paths=" + b"a" * (2 << 20)).status_code == 413
    assert httpx.post(address, content=b"paths=README.md").status_code == 401
