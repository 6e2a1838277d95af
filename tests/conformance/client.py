"""Makes every call of the Hugging Face client that a hub must answer, and prints one line of JSON for each.

    HF_ENDPOINT=http://… HF_TOKEN=kc_… python client.py

It runs in an environment with nothing but huggingface_hub, old or new, and knows nothing of kcard. A line is
{"name", "ok", "error", "seconds"}; "skipped" says why a call was not made. A second token, of somebody who may not see
what the first one hides, is in OTHER_TOKEN.
"""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationCopy,
    CommitOperationDelete,
    HfApi,
    HfFileSystem,
    ModelCard,
    hf_hub_download,
    hf_hub_url,
    snapshot_download,
)
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

ENDPOINT, TOKEN = os.environ["HF_ENDPOINT"], os.environ["HF_TOKEN"]
OTHER = os.environ.get("OTHER_TOKEN")
REPOS = "repo" if huggingface_hub.__version__.startswith("0.") else "repos"
MAJOR = int(huggingface_hub.__version__.split(".")[0])
SMALL, LARGE = 1_000, 6_000_000
CARD = """---
license: mit
language: en
library_name: peft
pipeline_tag: text-generation
base_model: acme/base
tags: [rivers, {tag}]
---
# Rivers
"""

api: Any = HfApi()  # its methods differ from version to version
calls: list[tuple[str, Callable[[], Any]]] = []
scratch = Path(tempfile.mkdtemp(prefix="conformance-"))
run = f"{int(time.time())}-{os.getpid()}"
me = ""  # the user's name, once it is known


class Skipped(Exception):
    """This version of the client has no such call."""


def call(name: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Register a call under the name that the table shows."""

    def register(function: Callable[[], Any]) -> Callable[[], Any]:
        calls.append((name, function))
        return function

    return register


def repo(name: str = "card") -> str:
    return f"{me}/{name}-{run}"


def refused(kind: type[Exception] | tuple[type[Exception], ...], function: Callable[[], Any]) -> Exception:
    """The error that a call must raise."""
    try:
        function()
    except kind as error:
        return error
    raise AssertionError(f"it was not refused with {kind}")


def status(function: Callable[[], Any]) -> int:
    """The status of the answer to a call that must be refused; older clients raise requests' own error."""
    error: Any = refused(OSError, function)
    return int(error.response.status_code)


def tensors(size: int) -> bytes:
    """A safetensors file with one tensor of random bytes."""
    header = json.dumps({"weight": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + os.urandom(size)


def downloaded(path: str, **options: Any) -> bytes:
    options = {"repo_id": repo(), "cache_dir": scratch / "cache", **options}
    return Path(hf_hub_download(filename=path, **options)).read_bytes()


CONFIG = json.dumps({"model_type": "opt", "hidden_size": 8}).encode()
WEIGHTS = tensors(LARGE)
FOLDER = {
    "README.md": CARD.format(tag=f"run-{run}").encode(),
    "config.json": CONFIG,
    "model.safetensors": WEIGHTS,
    "small.safetensors": tensors(SMALL),
    "notes/deep/er.txt": "Größe und Maß\n".encode(),
    "empty.txt": b"",
}


@call("whoami; wrong token: 401")
def _() -> None:
    global me
    found = api.whoami()
    me = found["name"]
    assert found["type"] == "user", found
    assert found["auth"]["accessToken"]["role"] == "write", found
    assert status(lambda: api.whoami(token="kc_" + "x" * 40)) == 401


@call("create_repo, exist_ok; there already: 409")
def _() -> None:
    url = api.create_repo(repo())
    assert url.repo_id == repo(), url
    assert api.create_repo(repo(), exist_ok=True).repo_id == repo()
    assert status(lambda: api.create_repo(repo())) == 409


@call("create_repo, private")
def _() -> None:
    api.create_repo(repo("hidden"), private=True)
    assert api.model_info(repo("hidden")).private


@call("create_repo, dataset")
def _() -> None:
    api.create_repo(repo("data"), repo_type="dataset")
    api.upload_file(
        path_or_fileobj=b'{"a": 1}\n', path_in_repo="a.jsonl", repo_id=repo("data"), repo_type="dataset"
    )
    assert downloaded("a.jsonl", repo_id=repo("data"), repo_type="dataset") == b'{"a": 1}\n'


@call("upload_file, small")
def _() -> None:
    api.upload_file(path_or_fileobj=b"{}", path_in_repo="first.json", repo_id=repo())
    assert downloaded("first.json") == b"{}"


@call("upload_file, README.md; broken metadata: refused")
def _() -> None:
    api.upload_file(path_or_fileobj=FOLDER["README.md"], path_in_repo="README.md", repo_id=repo())
    assert api.model_info(repo()).card_data["license"] == "mit"
    broken = b"---\nlicense: [mit\n---\n"
    refused(
        (ValueError, HfHubHTTPError),
        lambda: api.upload_file(path_or_fileobj=broken, path_in_repo="README.md", repo_id=repo()),
    )


@call("upload_file, 6 MB")
def _() -> None:
    content = tensors(LARGE)
    path = scratch / "large.safetensors"
    path.write_bytes(content)
    api.upload_file(path_or_fileobj=str(path), path_in_repo="large.safetensors", repo_id=repo())
    assert downloaded("large.safetensors") == content


@call("upload_file, pickle: refused")
def _() -> None:
    refused(
        (HfHubHTTPError, ValueError, RuntimeError),
        lambda: api.upload_file(path_or_fileobj=b"\x80\x04", path_in_repo="m.bin", repo_id=repo()),
    )


@call("upload_folder; nothing new; delete_patterns")
def _() -> None:
    for path, content in FOLDER.items():
        (scratch / "folder" / path).parent.mkdir(parents=True, exist_ok=True)
        (scratch / "folder" / path).write_bytes(content)
    api.upload_folder(folder_path=scratch / "folder", repo_id=repo())
    assert set(api.list_repo_files(repo())) >= set(FOLDER)
    before = api.model_info(repo()).sha
    api.upload_folder(folder_path=scratch / "folder", repo_id=repo())
    assert api.model_info(repo()).sha == before
    api.upload_folder(folder_path=scratch / "folder", repo_id=repo(), delete_patterns=["first.json"])
    assert "first.json" not in api.list_repo_files(repo())


@call("create_commit")
def _() -> None:
    head = api.model_info(repo()).sha
    made = api.create_commit(
        repo(),
        [
            CommitOperationAdd("b.txt", b"b"),
            CommitOperationCopy("model.safetensors", "copy.safetensors"),
            CommitOperationDelete("empty.txt"),
        ],
        commit_message="Three at once",
        commit_description="and why",
        parent_commit=head,
    )
    found = set(api.list_repo_files(repo(), revision=made.oid))
    assert "empty.txt" not in found, found
    assert {"b.txt", "copy.safetensors"} <= found, found
    assert downloaded("copy.safetensors") == WEIGHTS


@call("create_commit, wrong parent: 412; pull request: refused")
def _() -> None:
    first = api.list_repo_commits(repo())[-1].commit_id
    add = [CommitOperationAdd("c.txt", b"c")]
    assert status(lambda: api.create_commit(repo(), add, commit_message="Late", parent_commit=first)) == 412
    add = [CommitOperationAdd("d.txt", b"d")]
    assert status(lambda: api.create_commit(repo(), add, commit_message="Ask", create_pr=True)) >= 400
    assert "d.txt" not in api.list_repo_files(repo())


@call("delete_file, delete_folder")
def _() -> None:
    api.delete_file("b.txt", repo())
    assert not api.file_exists(repo(), "b.txt")
    api.delete_folder("notes", repo())
    assert not [path for path in api.list_repo_files(repo()) if path.startswith("notes/")]
    api.upload_file(path_or_fileobj=b"again", path_in_repo="notes/deep/er.txt", repo_id=repo())


@call("list_repo_commits")
def _() -> None:
    found = api.list_repo_commits(repo())
    assert found[0].commit_id == api.model_info(repo()).sha
    assert "Three at once" in [commit.title for commit in found]


@call("model_info, expand")
def _() -> None:
    found = api.model_info(repo(), files_metadata=True)
    assert found.id == repo()
    assert found.pipeline_tag == "text-generation", found
    assert found.library_name == "peft", found
    assert {"license:mit", "rivers", f"run-{run}"} <= set(found.tags or []), found.tags
    weights = next(file for file in found.siblings or [] if file.rfilename == "model.safetensors")
    assert weights.lfs is not None
    assert (weights.size, weights.lfs.size) == (len(WEIGHTS), len(WEIGHTS)), weights
    found = api.model_info(repo(), expand=["downloads", "tags", "sha"])
    assert found.sha is not None
    assert found.downloads is not None


@call("model_info, revision; not there; in another case")
def _() -> None:
    first = api.list_repo_commits(repo())[-1].commit_id
    assert api.model_info(repo(), revision=first).sha == first
    refused(RevisionNotFoundError, lambda: api.model_info(repo(), revision="nowhere"))
    refused(RepositoryNotFoundError, lambda: api.model_info(repo("nothing")))
    assert api.model_info(repo().upper().replace(me.upper(), me)).id == repo()


@call("list_models, search, author, two tags")
def _() -> None:
    assert repo() in [found.id for found in api.list_models(search=f"card-{run}")]
    found = list(api.list_models(author=me))
    assert repo() in [model.id for model in found]
    assert {model.id.split("/")[0] for model in found} == {me}
    assert [found.id for found in api.list_models(filter=["rivers", f"run-{run}"])] == [repo()]
    assert not list(api.list_models(filter=["seas", f"run-{run}"]))


@call("list_models, pipeline_tag, sort")
def _() -> None:
    if MAJOR >= 1:
        found = api.list_models(pipeline_tag="text-generation", author=me)
    else:
        found = api.list_models(task="text-generation", author=me)
    assert repo() in [model.id for model in found]
    found = [model.last_modified for model in api.list_models(sort="last_modified", author=me, full=True)]
    assert found == sorted(found, reverse=True), found


@call("list_models, pages")
def _() -> None:
    for number in range(3):
        api.create_repo(repo(f"page{number}"))
    every = {model.id for model in api.list_models(author=me)}
    paged = [model.id for model in _pages("models", 2)]
    assert len(paged) == len(set(paged))
    assert set(paged) == every, set(paged) ^ every
    assert len(list(api.list_models(author=me, limit=2))) == 2


def _pages(what: str, limit: int) -> Any:
    from huggingface_hub.hf_api import ModelInfo
    from huggingface_hub.utils._headers import build_hf_headers
    from huggingface_hub.utils._pagination import paginate

    params: dict[str, Any] = {"author": me, "limit": limit}
    for item in paginate(f"{ENDPOINT}/api/{what}", params=params, headers=build_hf_headers(token=TOKEN)):
        made: Any = ModelInfo
        yield made(**item)


@call("list_models, cardData; list_datasets, dataset_info")
def _() -> None:
    found = next(iter(api.list_models(search=f"card-{run}", cardData=True)))
    assert found.card_data is not None
    assert found.card_data["base_model"] == "acme/base"
    assert [found.id for found in api.list_datasets(search=f"data-{run}")] == [repo("data")]
    assert api.dataset_info(repo("data")).id == repo("data")


@call("list_repo_tree; not there")
def _() -> None:
    top = {entry.path for entry in api.list_repo_tree(repo())}
    assert "notes" in top, top
    assert "notes/deep/er.txt" not in top, top
    deep = {entry.path for entry in api.list_repo_tree(repo(), recursive=True, expand=True)}
    assert {"notes", "notes/deep", "notes/deep/er.txt"} <= deep, deep
    inside = {entry.path for entry in api.list_repo_tree(repo(), "notes/deep")}
    assert inside == {"notes/deep/er.txt"}, inside
    refused(EntryNotFoundError, lambda: list(api.list_repo_tree(repo(), "additional_chat_templates")))


@call("get_paths_info, expand")
def _() -> None:
    found = {entry.path: entry for entry in api.get_paths_info(repo(), ["config.json", "notes", "nothing"])}
    assert set(found) == {"config.json", "notes"}, found
    file: Any = found["config.json"]
    assert file.size == len(CONFIG)
    weights: Any = api.get_paths_info(repo(), "model.safetensors", expand=True)[0]
    assert weights.last_commit is not None
    assert weights.lfs is not None


@call("create_branch, revision")
def _() -> None:
    api.create_branch(repo(), branch="side/one")
    api.upload_file(path_or_fileobj=b"side", path_in_repo="side.txt", repo_id=repo(), revision="side/one")
    assert downloaded("side.txt", revision="side/one") == b"side"
    assert not api.file_exists(repo(), "side.txt")
    assert status(lambda: api.create_branch(repo(), branch="side/one")) == 409
    api.create_branch(repo(), branch="side/one", exist_ok=True)
    first = api.list_repo_commits(repo())[-1].commit_id
    api.create_branch(repo(), branch="old", revision=first)
    assert api.model_info(repo(), revision="old").sha == first


@call("create_tag")
def _() -> None:
    api.create_tag(repo(), tag="t1", tag_message="First")
    assert api.model_info(repo(), revision="t1").sha == api.model_info(repo()).sha
    assert status(lambda: api.create_tag(repo(), tag="t1")) == 409
    api.create_tag(repo(), tag="t1", exist_ok=True)


@call("list_repo_refs")
def _() -> None:
    found = api.list_repo_refs(repo())
    assert {"main", "side/one", "old"} <= {branch.name for branch in found.branches}, found
    assert [tag.name for tag in found.tags] == ["t1"], found


@call("delete_tag, delete_branch")
def _() -> None:
    api.create_tag(repo(), tag="t2")
    api.delete_tag(repo(), tag="t2")
    assert not api.revision_exists(repo(), "t2")
    api.delete_branch(repo(), branch="old")
    refused(RevisionNotFoundError, lambda: api.model_info(repo(), revision="old"))


@call("hf_hub_download; cached by its ETag; local_dir")
def _() -> None:
    assert downloaded("config.json") == CONFIG
    assert downloaded("model.safetensors") == WEIGHTS
    path = hf_hub_download(repo(), "model.safetensors", cache_dir=scratch / "cache")
    before = Path(path).stat().st_mtime_ns
    assert hf_hub_download(repo(), "model.safetensors", cache_dir=scratch / "cache") == path
    assert Path(path).stat().st_mtime_ns == before
    assert downloaded("model.safetensors", force_download=True) == WEIGHTS
    path = hf_hub_download(repo(), "notes/deep/er.txt", local_dir=scratch / "local")
    assert Path(path).read_bytes() == b"again"


@call("hf_hub_download, not there, which is cached")
def _() -> None:
    refused(EntryNotFoundError, partial(downloaded, "nothing.json"))
    refused(RevisionNotFoundError, partial(downloaded, "config.json", revision="nowhere"))
    refused(RepositoryNotFoundError, partial(downloaded, "config.json", repo_id=repo("nothing")))
    from huggingface_hub import _CACHED_NO_EXIST, try_to_load_from_cache

    found = try_to_load_from_cache(repo(), "nothing.json", cache_dir=scratch / "cache")
    assert found is _CACHED_NO_EXIST, found


@call("get_hf_file_metadata")
def _() -> None:
    found = huggingface_hub.get_hf_file_metadata(hf_hub_url(repo(), "model.safetensors"), token=TOKEN)
    assert found.size == len(WEIGHTS)
    assert found.commit_hash == api.model_info(repo()).sha


@call("ranges: 206, 416")
def _() -> None:
    assert _ranged("bytes=10-19") == (206, WEIGHTS[10:20])
    assert _ranged(f"bytes={len(WEIGHTS) - 5}-") == (206, WEIGHTS[-5:])
    assert _ranged(f"bytes={len(WEIGHTS)}-")[0] == 416


def _ranged(value: str) -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {TOKEN}", "Range": value}
    asked = urllib.request.Request(hf_hub_url(repo(), "model.safetensors"), headers=headers)
    try:
        with urllib.request.urlopen(asked) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, b""


@call("resume")
def _() -> None:
    from huggingface_hub.file_download import http_get

    path = scratch / "resumed"
    path.write_bytes(WEIGHTS[:1_000_000])
    with path.open("ab") as stream:
        http_get(
            hf_hub_url(repo(), "model.safetensors"),
            stream,
            resume_size=1_000_000,
            expected_size=len(WEIGHTS),
            headers={"Authorization": f"Bearer {TOKEN}"},
        )
    assert path.read_bytes() == WEIGHTS


@call("snapshot_download")
def _() -> None:
    folder = Path(snapshot_download(repo(), cache_dir=scratch / "snapshots"))
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert (folder / "notes/deep/er.txt").read_bytes() == b"again"


@call("snapshot_download, revision, allow_patterns, local_dir")
def _() -> None:
    folder = scratch / "some"
    snapshot_download(repo(), revision="t1", allow_patterns=["*.json"], local_dir=folder)
    found = {path.name for path in folder.iterdir() if path.is_file()}
    assert found == {"config.json"}, found


@call("get_safetensors_metadata")
def _() -> None:
    found = api.parse_safetensors_file_metadata(repo(), "model.safetensors")
    assert found.tensors["weight"].shape == [LARGE]


@call("HfFileSystem")
def _() -> None:
    files = HfFileSystem(token=TOKEN)
    assert f"{repo()}/config.json" in files.ls(repo(), detail=False)
    with files.open(f"{repo()}/model.safetensors", "rb") as stream:
        stream.seek(100)
        assert stream.read(50) == WEIGHTS[100:150]


@call("ModelCard.load, push_to_hub")
def _() -> None:
    card = ModelCard.load(repo(), ignore_metadata_errors=False)
    card.data.tags = [*(card.data.tags or []), "seen"]
    if MAJOR < 2:
        raise Skipped("push_to_hub asks https://huggingface.co to check the card, whatever HF_ENDPOINT says")
    card.push_to_hub(repo())
    assert "seen" in (api.model_info(repo()).tags or [])


@call("repo_exists, revision_exists, file_exists")
def _() -> None:
    assert api.repo_exists(repo())
    assert not api.repo_exists(repo("nothing"))
    assert api.revision_exists(repo(), "t1")
    assert not api.revision_exists(repo(), "nowhere")
    assert api.file_exists(repo(), "config.json")
    assert not api.file_exists(repo(), "nothing.json")


@call("auth_check")
def _() -> None:
    api.auth_check(repo())
    refused(RepositoryNotFoundError, lambda: api.auth_check(repo("nothing")))


@call("private, seen by nobody else")
def _() -> None:
    api.upload_file(path_or_fileobj=b"{}", path_in_repo="config.json", repo_id=repo("hidden"))
    assert downloaded("config.json", repo_id=repo("hidden")) == b"{}"
    for token in (False, *([OTHER] if OTHER else [])):
        refused(RepositoryNotFoundError, partial(api.model_info, repo("hidden"), token=token))
        fresh = {"cache_dir": scratch / "other", "repo_id": repo("hidden"), "token": token}
        refused(RepositoryNotFoundError, partial(downloaded, "config.json", **fresh))
        assert repo("hidden") not in [found.id for found in api.list_models(author=me, token=token)]


@call("no rights: 403")
def _() -> None:
    if not OTHER:
        raise Skipped("no second token")
    add = [CommitOperationAdd("e.txt", b"e")]
    refuse = partial(api.create_commit, repo(), add, commit_message="Mine?", token=OTHER)
    assert status(refuse) == 403
    assert status(partial(api.create_repo, repo("theirs"), token=OTHER)) == 403


@call("update_repo_settings, private and gated")
def _() -> None:
    api.update_repo_settings(repo("page0"), private=True)
    assert api.model_info(repo("page0")).private
    api.update_repo_settings(repo("page0"), private=False)
    api.upload_file(path_or_fileobj=b"{}", path_in_repo="config.json", repo_id=repo("page0"))
    api.update_repo_settings(repo("page0"), gated="auto")
    assert api.model_info(repo("page0")).gated == "auto"
    fresh = {"cache_dir": scratch / "gated", "repo_id": repo("page0"), "token": False}
    refused(GatedRepoError, partial(downloaded, "config.json", **fresh))


@call("like, unlike")
def _() -> None:
    if OTHER and hasattr(api, "like"):
        api.like(repo(), token=OTHER)
    api.unlike(repo())


@call("move_repo, delete_repo")
def _() -> None:
    api.move_repo(repo("page1"), repo("moved"))
    assert api.repo_exists(repo("moved"))
    refused(HfHubHTTPError, partial(api.move_repo, repo("moved"), repo()))
    api.delete_repo(repo("page2"))
    assert not api.repo_exists(repo("page2"))
    refused(RepositoryNotFoundError, partial(api.delete_repo, repo("page2")))
    api.delete_repo(repo("page2"), missing_ok=True)


def hf(*arguments: str, fails: bool = False, **environment: str) -> str:
    """What the client's command prints; HF_TOKEN is not set, so that it uses what it stored."""
    command = Path(sys.executable).with_name("hf")
    kept = {name: value for name, value in os.environ.items() if name != "HF_TOKEN"}
    done = subprocess.run(
        [str(command), *arguments],
        env=kept | environment,
        input="y\n" * 3,
        capture_output=True,
        text=True,
        cwd=scratch,
        check=False,
    )
    if (done.returncode != 0) != fails:
        raise AssertionError(
            f"hf {arguments[0]}: exit code {done.returncode}: {done.stdout} {done.stderr}"[-600:]
        )
    return done.stdout + done.stderr


def help_of(*arguments: str) -> str:
    """The help of a command; Skipped where this version has none such."""
    try:
        return hf(*arguments, "--help")
    except AssertionError:
        raise Skipped(f"no hf {' '.join(arguments)} in {huggingface_hub.__version__}") from None


@call("hf auth login, whoami")
def _() -> None:
    hf("auth", "login", "--token", TOKEN)
    hf("auth", "login", "--token", "kc_" + "x" * 40, fails=True)
    assert me in hf("auth", "whoami")


@call("hf repos create, upload")
def _() -> None:
    hf(REPOS, "create", repo("cli"), "--exist-ok")
    assert api.repo_exists(repo("cli"))
    hf("upload", repo("cli"), str(scratch / "folder"), ".")
    assert "model.safetensors" in api.list_repo_files(repo("cli"))
    hf("upload", repo("cli"), str(scratch / "large.safetensors"), "large.safetensors")
    assert "large.safetensors" in api.list_repo_files(repo("cli"))


@call("hf download")
def _() -> None:
    hf("download", repo("cli"), "--local-dir", str(scratch / "fetched"))
    assert (scratch / "fetched" / "model.safetensors").read_bytes() == WEIGHTS


@call("hf models ls, info")
def _() -> None:
    help_of("models", "ls")
    assert repo("cli") in hf("models", "ls", "--author", me, "--search", f"cli-{run}", "--format", "json")
    help_of("models", "info")
    assert repo("cli") in hf("models", "info", repo("cli"))


@call("hf repos tag")
def _() -> None:
    hf(REPOS, "tag", "create", repo("cli"), "t1")
    assert "t1" in hf(REPOS, "tag", "list", repo("cli"))


@call("hf repos delete")
def _() -> None:
    help_of(REPOS, "delete")
    hf(REPOS, "delete", repo("cli"))
    assert not api.repo_exists(repo("cli"))


@call("hf auth logout")
def _() -> None:
    hf("auth", "logout")


def main() -> int:
    """Make the calls one after another; the exit code is 1 where one failed."""
    failed = False
    for name, function in calls:
        began, line = time.perf_counter(), {"name": name, "ok": True, "error": None}
        try:
            function()
        except Skipped as reason:
            line["skipped"] = str(reason)
        except Exception as error:  # noqa: BLE001 # whatever it was, the next calls are made all the same
            failed = True
            where = error.__traceback__.tb_next if error.__traceback__ else None
            line |= {
                "ok": False,
                "error": f"{type(error).__name__}, line {where.tb_lineno if where else '?'}: {error}"[:600],
            }
        line["seconds"] = round(time.perf_counter() - began, 3)
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    shutil.rmtree(scratch, ignore_errors=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
