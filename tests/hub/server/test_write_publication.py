"""A tag on a card publishes a version of it, wholly or not at all."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub.errors import BadRequestError, HfHubHTTPError
from safetensors.numpy import save

from kcard.hub.values import DeclaredFigures
from kcard.manifest import Manifest, seal
from tests.hub.exams import exam
from tests.hub.shared_hub import Shared, status


@pytest.fixture
def name(shared: Shared, request: pytest.FixtureRequest) -> str:
    """A repository of the test's own."""
    name = f"bob/{request.node.name[5:60].strip('_')}"
    shared.create(name)
    return name


def card(
    folder: Path, weight: float = 0.0, kind: str = "retrieval", more: Mapping[str, bytes] | None = None
) -> Path:
    """A sealed card, with more files than it needs."""
    folder.mkdir(exist_ok=True)
    files: Mapping[str, bytes] = {
        "model.safetensors": save({"weight": np.full((8, 8), weight, dtype=np.float32)}),
        "config.json": b"{}",
    }
    for path, content in {**files, **(more or {})}.items():
        (folder / path).write_bytes(content)
    seal(folder, replace(Manifest(name="moons", description="Moons of all planets"), kind=kind))
    return folder


def test_a_tag_publishes_the_card_of_its_commit(shared: Shared, name: str, tmp_path: Path) -> None:
    api = shared.api("bob")
    folder = card(tmp_path)
    done = api.upload_folder(repo_id=name, folder_path=folder)
    api.create_tag(name, tag="v1", tag_message="the first")
    repository = shared.hub.repositories.get("model", name)
    (published,) = shared.hub.publications.list(repository)
    assert (published.tag, published.commit, published.author) == ("v1", done.oid, "bob")
    version = shared.hub.registry.get(name)
    assert version.sha256 == published.version
    assert version.manifest == Manifest.read(folder)
    assert shared.hub.registry.verify(name) == []
    assert [event.action for event in shared.hub.events.list(1)] == ["card.published"]


def test_a_published_tag_neither_moves_nor_goes(shared: Shared, name: str, tmp_path: Path) -> None:
    api = shared.api("bob")
    api.upload_folder(repo_id=name, folder_path=card(tmp_path))
    api.create_tag(name, tag="v1")
    first = shared.hub.registry.get(name)
    api.upload_folder(repo_id=name, folder_path=card(tmp_path, weight=2))
    with pytest.raises(HfHubHTTPError) as error:
        api.create_tag(name, tag="v1")
    assert status(error) == 409
    for who in ("bob", "bob:admin"):
        with pytest.raises(HfHubHTTPError) as error:
            shared.api(who).delete_tag(name, tag="v1")
        assert status(error) == 403
    api.create_tag(name, tag="v2")
    assert [version.number for version in shared.hub.registry.versions(name)] == [1, 2]
    assert shared.hub.registry.versions(name)[0] == first


def test_a_card_that_is_not_whole_is_not_published_and_its_tag_not_made(
    shared: Shared, name: str, tmp_path: Path
) -> None:
    api = shared.api("bob")
    api.upload_folder(repo_id=name, folder_path=card(tmp_path))
    api.upload_file(path_or_fileobj=b'{"changed": 1}', path_in_repo="config.json", repo_id=name)
    with pytest.raises(BadRequestError, match=r"config\.json has sha256"):
        api.create_tag(name, tag="v1")
    api.delete_file("config.json", name)
    with pytest.raises(BadRequestError, match=r"config\.json, listed in kcard\.json, is not in the commit"):
        api.create_tag(name, tag="v1")
    assert api.list_repo_refs(name).tags == []
    assert shared.hub.publications.list(shared.hub.repositories.get("model", name)) == []


def test_an_index_of_more_rows_than_there_are_passages_is_not_published(
    shared: Shared, name: str, tmp_path: Path
) -> None:
    api = shared.api("bob")
    more = {"passages.jsonl": b'{"text": "A."}\n', "index/params.index.json": b'{"num_docs": 99999999999}'}
    (tmp_path / "index").mkdir()
    api.upload_folder(repo_id=name, folder_path=card(tmp_path, more=more))
    with pytest.raises(
        BadRequestError, match=r"params\.index\.json claims 99999999999 rows, but the card has 1"
    ):
        api.create_tag(name, tag="v1")
    assert api.list_repo_refs(name).tags == []


def test_a_trained_card_is_published_with_its_exam_only(shared: Shared, name: str, tmp_path: Path) -> None:
    api = shared.api("bob")
    api.upload_folder(repo_id=name, folder_path=card(tmp_path, kind="full"))
    with pytest.raises(BadRequestError, match="exam"):
        api.create_tag(name, tag="v1")
    forged = card(tmp_path, kind="full", more={"exam.json": b'{"own": {"recall": {"mean": 1}}}'})
    api.upload_folder(repo_id=name, folder_path=forged)
    with pytest.raises(BadRequestError, match=r"exam\.json is not plausible"):
        api.create_tag(name, tag="v1")
    more = {"exam.json": exam("moons", 0.75)}
    api.upload_folder(repo_id=name, folder_path=card(tmp_path, kind="full", more=more))
    api.create_tag(name, tag="v1")
    repository = shared.hub.repositories.get("model", name)
    assert shared.hub.publications.summarize([repository.id])[repository.id].declared == DeclaredFigures(
        0.9, 0.75, coverage=1.0
    )


def test_a_manifest_that_is_none_is_refused(shared: Shared, name: str) -> None:
    api = shared.api("bob")
    api.upload_file(path_or_fileobj=b'{"format": 1}', path_in_repo="kcard.json", repo_id=name)
    with pytest.raises(BadRequestError, match="can't publish the card"):
        api.create_tag(name, tag="v1")


def test_a_deleted_repository_takes_its_versions_along(shared: Shared, name: str, tmp_path: Path) -> None:
    api = shared.api("bob")
    api.upload_folder(repo_id=name, folder_path=card(tmp_path))
    api.create_tag(name, tag="v1")
    api.delete_repo(name)
    assert name not in {version.name for version in shared.hub.registry.list()}


def test_a_moved_repository_publishes_under_its_new_name(shared: Shared, name: str, tmp_path: Path) -> None:
    api = shared.api("bob")
    api.upload_folder(repo_id=name, folder_path=card(tmp_path))
    api.create_tag(name, tag="v1")
    api.move_repo(name, "lab/moved-card")
    assert shared.hub.registry.get("lab/moved-card").number == 1


@pytest.mark.parametrize("leave", ["delete", "rename"])
def test_a_published_tag_is_not_replaced_by_another_card(shared: Shared, tmp_path: Path, leave: str) -> None:
    api, name = shared.api("bob"), f"bob/after-{leave}"
    shared.create(name)
    folder = card(tmp_path)
    api.upload_folder(repo_id=name, folder_path=folder)
    api.create_tag(name, tag="v1")
    if leave == "delete":
        api.delete_repo(name)
    else:
        api.move_repo(name, "bob/renamed")
    api.create_repo(name)
    api.upload_folder(repo_id=name, folder_path=card(tmp_path / "other", weight=1))
    message = rf"{name}@v1 was the card [0-9a-f]{{12}}…, and published tags are permanent"
    for create in (api.create_tag, lambda repo, tag: api.create_branch(repo, branch=tag)):
        with pytest.raises(HfHubHTTPError, match=message) as error:
            create(name, tag="v1")
        assert status(error) == 409
    api.create_tag(name, tag="v2")
    assert [version.number for version in shared.hub.registry.versions(name)] == [2]
    if leave == "rename":  # nor may it come back to a name that has another card under the same tag
        api.create_tag(name, tag="v3")
        api.move_repo(name, "bob/away")
        api.upload_folder(repo_id="bob/renamed", folder_path=card(tmp_path / "third", weight=3))
        api.create_tag("bob/renamed", tag="v3")
        with pytest.raises(HfHubHTTPError, match=rf"{name}@v3 was the card"):
            api.move_repo("bob/renamed", name)


def test_the_same_card_is_published_again_under_the_tag_that_it_had(
    shared: Shared, name: str, tmp_path: Path
) -> None:
    api = shared.api("bob")
    folder = card(tmp_path)
    for _ in range(2):
        api.create_repo(name, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder)
        api.create_tag(name, tag="v1")
        assert [version.number for version in shared.hub.registry.versions(name)] == [1]
        api.delete_repo(name)
