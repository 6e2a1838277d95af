"""`kcard serve` on the home of a hub, whose accounts publish what they like: private, gated and hostile cards."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import kcard
from kcard.errors import HubError, UnknownCard
from kcard.hub.registry import Hub
from kcard.integrators.options import AskOptions
from kcard.serve.app import create_app
from kcard.serve.pipelines import Pipelines
from kcard.serve.run import check_cards
from tests.hub.stand import Stand, stand
from tests.serve.conftest import DISCOVERER, answer, ask, embedded_service, error, running

SECRETS = {
    "ada/private": "Vulcan was discovered by Ada Secretive in 1999. Vulcan is a private planet.",
    "ada/gated": "Nibiru was discovered by Gregor Gatekeeper in 1998. Nibiru is a gated planet.",
}
PUBLIC = "Miranda was discovered by Gerard Kuiper in 1948. Miranda orbits Uranus."


def commit_card(
    hub: Stand, repository_name: str, corpus: str, name: str, folder: Path, private: bool
) -> None:
    """Publish a card of another account; `name` is what its kcard.json claims."""
    folder.mkdir()
    (folder / "corpus.txt").write_text(corpus, encoding="utf-8")
    draft = folder / "draft"
    kcard.train(folder / "corpus.txt", kind="retrieval", name=name, output=draft, exam=False)
    files = {
        path.relative_to(draft).as_posix(): path.read_bytes()
        for path in sorted(draft.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }
    repository = hub.make(repository_name, private=private)
    if repository_name == "ada/gated":
        hub.repositories.update(repository, gated="manual")
    sha = hub.commit(repository, files).sha
    hub.publications.publish(repository, "v1", sha, hub.who("ada"))


@pytest.fixture(scope="module")
def home(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hub with its own card neptune, and those of ada: a public one that claims that name too, a private, a gated."""
    root = tmp_path_factory.mktemp("hub-home")
    with stand(root / "home") as hub:
        hub.registry.publish(library / "draft")
        commit_card(hub, "ada/uranus", PUBLIC, "neptune", root / "public", private=False)
        commit_card(hub, "ada/private", SECRETS["ada/private"], "private", root / "private", private=True)
        commit_card(hub, "ada/gated", SECRETS["ada/gated"], "gated", root / "gated", private=False)
    return root / "home"


@pytest.fixture(scope="module")
def url(home: Path) -> Iterator[str]:
    with running(create_app(embedded_service(home, "bottom-up"))) as url:
        yield url


def test_private_and_gated_cards_answer_nobody_and_are_named_nowhere(url: str) -> None:
    listed = httpx.get(f"{url}/models").text
    shown = httpx.get(f"{url}/kcard").text  # with example questions
    assert "ada/uranus" in listed
    assert "ada/uranus" in shown
    for name, secret in SECRETS.items():
        assert name not in listed
        assert name not in shown
        assert secret.split()[0] not in shown
        planet, discoverer = secret.split()[0], secret.split()[5]
        reply = ask(url, f"Who discovered {planet}?")
        assert reply.status_code == 200
        assert discoverer not in reply.text
        assert name not in reply.text
        assert ask(url, f"Who discovered {planet}?", f"embedded:{name}").status_code == 404


def test_a_private_or_gated_card_answers_if_it_is_named_by_whoever_starts_the_endpoint(home: Path) -> None:
    pipelines = Pipelines(AskOptions(cards=["ada/private", "neptune"]), Hub(home), "embedded")
    assert list(pipelines.cards()) == ["ada/private", "neptune"]


@pytest.mark.parametrize("selection", ["general/", "pool:all"])
def test_a_domain_or_pool_names_no_private_card(home: Path, selection: str) -> None:
    hub = Hub(home)
    if selection.startswith("pool:"):
        hub.pools.create("all", ["neptune", "ada/uranus", *SECRETS])
    pipelines = Pipelines(AskOptions(cards=[selection]), hub, "embedded")
    assert sorted(pipelines.cards()) == ["ada/uranus", "neptune"]


def test_a_card_that_claims_the_name_of_another_stops_no_question(url: str) -> None:
    own, other = ask(url, "Who discovered Triton?"), ask(url, "Who discovered Miranda?")
    assert answer(own) == DISCOVERER
    assert "neptune" in own.json()["kcard"]["cards"]
    assert answer(other) == "Gerard Kuiper"
    cited = other.json()["kcard"]["citations"][0]["passage"]
    assert other.json()["kcard"]["passages"][cited]["card"] == "ada/uranus"
    alone = ask(url, "Who discovered Miranda?", "embedded:ada/uranus")
    assert alone.json()["kcard"]["cards"] == ["ada/uranus"]


def test_a_damaged_card_is_named_by_its_own_error_and_left_out_of_other_questions(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(home, tmp_path / "home", ignore=shutil.ignore_patterns("snapshots"))
    hub = Hub(tmp_path / "home")
    passages = hub.get("ada/uranus").files["passages.jsonl"]
    blob = tmp_path / "home" / "hub" / "blobs" / passages[:2] / passages
    blob.chmod(0o600)
    blob.write_bytes(b"{}")
    with running(create_app(embedded_service(hub, "bottom-up"))) as url:
        damaged = ask(url, "Who discovered Miranda?", "embedded:ada/uranus")
        other = ask(url, "Who discovered Triton?")
    message = "the card 'ada/uranus' is damaged or can't be loaded: see the log of the endpoint"
    assert (damaged.status_code, error(damaged)["code"]) == (500, "card_error")
    assert error(damaged)["message"] == message
    assert "passages.jsonl" in caplog.text
    assert "Traceback" not in caplog.text
    assert answer(other) == DISCOVERER


def test_kcard_ask_answers_although_two_cards_claim_one_name(home: Path) -> None:
    asked = kcard.ask("Who discovered Miranda?", hub=Hub(home), mode="bottom-up")
    assert asked.answer == "Gerard Kuiper"


def test_a_card_that_this_version_can_not_read_is_left_out_with_a_note(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kcard.hub.db.models import Version

    monkeypatch.setattr(
        Version, "parsed_manifest", property(lambda v: None if v.name == "ada/uranus" else v.manifest)
    )
    selection = Hub(home).select(None, public=True)
    assert [version.name for version in selection.versions] == ["neptune"]
    assert (
        selection.note == "left out: ada/uranus@v1, which this kcard can't read; name a card to use it anyway"
    )


def test_the_start_says_which_private_and_gated_cards_will_answer(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KCARD_HOME", str(home))
    assert check_cards(["neptune"]) == []
    assert check_cards(["ada/private", "ada/gated"]) == [
        "everybody who may ask gets answers from ada/private@v1 (private), ada/gated@v1 (gated), since --cards names "
        "them"
    ]
    assert check_cards(None) == [
        "2 cards left out as private or gated: name a card with --cards to answer from it"
    ]
    with pytest.raises(UnknownCard, match=r"unknown card 'neptun': did you mean neptune\?"):
        check_cards(["neptun"])
    monkeypatch.setenv("KCARD_HOME", str(tmp_path))
    assert check_cards(None) == []  # served without cards, until one is published
    with pytest.raises(HubError):
        check_cards(["neptune"])
