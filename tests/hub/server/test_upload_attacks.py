"""Uploads and commits of those who want to stop the hub, fill its disk, or have what is not theirs."""

import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
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
from tests.hub.server.attacks import commit, connect, inline, large, lines, wait_for
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


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def action(shared: Shared, token: str, name: str, content: bytes, *, parts: bool = False) -> dict[str, Any]:
    """Where a token may upload content by LFS."""
    body = {"operation": "upload", "objects": [{"oid": sha(content), "size": len(content)}]}
    body["transfers"] = ["multipart" if parts else "basic"]
    headers = {"Authorization": f"Bearer {token}"}
    answer = httpx.post(f"{shared.url}/{name}.git/info/lfs/objects/batch", json=body, headers=headers)
    item: dict[str, Any] = answer.json()["objects"][0]
    return item["actions"]["upload"] if "actions" in item else item


def upload(shared: Shared, who: str, name: str, content: bytes) -> str:
    done = httpx.put(action(shared, shared.tokens[who], name, content)["href"], content=content, timeout=60)
    assert done.status_code == 200, done.text
    return sha(content)


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
        deadline = time.monotonic() + 30
        while not (busy := busy_checks()) and time.monotonic() < deadline:
            time.sleep(0.01)
        for process in busy:
            os.kill(process, signal.SIGKILL)
        assert busy
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
    answers: list[str] = []

    def attack(content: bytes) -> None:
        with httpx.Client(timeout=120, headers={"Authorization": f"Bearer {shared.tokens['bob']}"}) as client:
            body = lines(large(f"{len(content)}.json", sha(content)))
            client.post(f"{shared.url}/api/models/bob/target/commit/main", content=body)
        answers.append("bob")

    attackers = [threading.Thread(target=attack, args=(content,)) for content in files]
    for attacker in attackers:
        attacker.start()
    time.sleep(0.2)
    assert commit(shared, "dan", "dan/own", inline("a.txt", b"dan")).status_code == 200
    answers.append("dan")
    for attacker in attackers:
        attacker.join()
    assert answers.index("dan") <= 3, "bob's commits take turns"


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
    with ThreadPoolExecutor(6) as pool:
        done = list(
            pool.map(
                lambda put: httpx.put(put[0], content=put[1], timeout=60), zip(hrefs, files, strict=True)
            )
        )
    assert sorted(answer.status_code for answer in done) == [200, 200, 413, 413, 413, 413]
    assert sum(shared.hub.blobs.holds(sha(content)) for content in files) == 2


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
    with ThreadPoolExecutor(6) as pool:
        first = list(pool.map(lambda part: httpx.put(part[0], content=part[1], timeout=60), parts[:3]))
        rest = list(pool.map(lambda part: httpx.put(part[0], content=part[1], timeout=60), parts[3:]))
    assert [answer.status_code for answer in first] == [200] * 3
    assert sorted(answer.status_code for answer in rest) == [200] * 7 + [413] * 8
    assert charged(shared, limited) == before + 10 * PART
    done = {"oid": sha(content), "parts": []}
    assert httpx.post(upload_["href"], json=done, timeout=60).status_code == 200
    assert httpx.post(upload_["href"], json=done, timeout=60).status_code == 200
    assert charged(shared, limited) == before + 10 * PART
    assert commit(shared, limited, "cleo/own", large("a.bib", sha(content))).status_code == 400
    assert shared.hub.blobs.holds(sha(content))


def test_inline_files_over_quota_are_not_stored(shared: Shared, limited: str) -> None:
    contents = [os.urandom(QUOTA * 3 // 10).hex().encode() for _ in range(4)]
    before = on_disk(shared)
    for number, content in enumerate(contents):
        commit(shared, limited, "cleo/own", inline(f"{number}.txt", content))
    assert on_disk(shared) - before <= QUOTA
    assert [shared.hub.blobs.holds(sha(content)) for content in contents] == [True, False, False, False]


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


@pytest.fixture
def bound(shared: Shared) -> str:
    """A token of bob for bob/target only."""
    name = f"bound-{time.monotonic_ns()}"
    return shared.hub.tokens.create("bob", name=name, scope="write", repository="bob/target")


def test_a_token_of_one_repository_gets_nothing_that_was_uploaded_elsewhere(
    shared: Shared, bound: str
) -> None:
    content = b"for another repository " + os.urandom(8).hex().encode()
    sha256 = upload(shared, "bob", "bob/other", content)
    address = f"{shared.url}/api/models/bob/target/commit/main"
    headers = {"Authorization": f"Bearer {bound}"}
    answers = [
        httpx.post(address, content=lines(large("a.txt", oid)), headers=headers)
        for oid in (sha256, "ab" * 32)
    ]
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
        httpx.post(parts["href"], json={"oid": sha(content)}),
    ]
    shared.hub.accounts.update("dan", disabled=False)
    assert [answer.status_code for answer in answers] == [401] * 3
    assert not shared.hub.blobs.holds(sha(content))


# --- what ends while a request is being sent -------------------------------------------------------------------------


def end_token(shared: Shared, token: str) -> None:
    shared.hub.tokens.revoke("cleo", token)


def end_account(shared: Shared, _token: str) -> None:
    shared.hub.accounts.update("cleo", disabled=True)


def end_role(shared: Shared, _token: str) -> None:
    shared.hub.accounts.set_member("lab", "cleo", "read")


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


ENDS: dict[Callable[[Shared, str], None], int] = {end_token: 401, end_account: 401, end_role: 403}


@pytest.mark.parametrize("end", ENDS)
def test_a_commit_that_is_being_sent_ends_with_what_allowed_it(
    shared: Shared, cleo: tuple[str, str], end: Callable[[Shared, str], None]
) -> None:
    token, name = cleo
    head = shared.hub.refs.resolve(shared.hub.repositories.get("model", "lab/own"), "main")
    content = lines(inline("late.txt", os.urandom(8).hex().encode()))
    body = interrupted(shared, content, lambda: end(shared, name))
    address = f"{shared.url}/api/models/lab/own/commit/main"
    answer = httpx.post(address, content=body, headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == ENDS[end], answer.text
    assert shared.hub.refs.resolve(shared.hub.repositories.get("model", "lab/own"), "main") == head


@pytest.mark.parametrize("end", ENDS)
def test_an_upload_that_is_being_sent_ends_with_what_allowed_it(
    shared: Shared, cleo: tuple[str, str], end: Callable[[Shared, str], None]
) -> None:
    token, name = cleo
    content = os.urandom(PART + 10)
    whole, parts = (action(shared, token, "lab/own", content, parts=parts) for parts in (False, True))
    before = on_disk(shared)
    answer = httpx.put(whole["href"], content=interrupted(shared, content, lambda: end(shared, name)))
    assert answer.status_code == ENDS[end], answer.text
    # What was allowed before is of no use any more.
    later = [
        httpx.put(parts["header"]["00001"], content=content[:PART]),
        httpx.post(parts["href"], json={"oid": sha(content)}),
    ]
    assert [answer.status_code for answer in later] == [ENDS[end]] * 2
    assert on_disk(shared) == before


def test_a_part_that_is_being_sent_ends_with_its_token(shared: Shared, cleo: tuple[str, str]) -> None:
    token, name = cleo
    content = os.urandom(PART + 10)
    parts = action(shared, token, "lab/own", content, parts=True)
    before = on_disk(shared)
    body = interrupted(shared, content[:PART], lambda: end_token(shared, name))
    assert httpx.put(parts["header"]["00001"], content=body).status_code == 401
    assert on_disk(shared) == before


def test_paths_are_received_before_their_token_is_checked(shared: Shared) -> None:
    # Refused by its size, not by the missing token: the body was read first.
    address = f"{shared.url}/api/models/bob/secret/paths-info/main"
    assert httpx.post(address, content=b"paths=" + b"a" * (2 << 20)).status_code == 413
    assert httpx.post(address, content=b"paths=README.md").status_code == 401
