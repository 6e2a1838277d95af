"""A tag on a card publishes a version of it, wholly or not at all."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub.errors import BadRequestError, HfHubHTTPError
from safetensors.numpy import save

from kcard.manifest import Manifest, seal
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
