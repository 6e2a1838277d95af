"""Search over names, domains, descriptions and tags, with facets and their counts, on both databases."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from kcard.hub import search_index
from kcard.hub.audits import AuditFinding
from kcard.hub.errors import Invalid
from kcard.hub.registry import Hub
from kcard.hub.search import RepositorySearch, SearchIndex, SearchQuery
from kcard.manifest import MANIFEST, Base, Manifest, seal
from tests.hub.stand import Stand, stand


def card(folder: Path, name: str, description: str, domain: str, **values: object) -> dict[str, bytes]:
    """The files of a card that nobody trained."""
    folder.mkdir(parents=True, exist_ok=True)
    licence = values.pop("licence", "mit")
    (folder / "README.md").write_text(f"---\nlicense: {licence}\nlanguage: [en]\n---\n# {name}\n")
    (folder / "search.json").write_text('{"evidence": "wikipedia:en"}')
    seal(folder, Manifest(name=name, description=description, domain=domain, kind="search", **values))  # type: ignore[arg-type]
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def hub(tmp_path: Path, any_database: str | None) -> Iterator[Stand]:
    with stand(tmp_path / "home", any_database, exam_required=False) as hub:
        yield hub


def publish(hub: Stand, folder: Path, name: str, description: str, domain: str, **values: object) -> None:
    own = name.partition("/")[2]
    repository = hub.make(name)
    sha = hub.commit(repository, card(folder / own, own, description, domain, **values)).sha
    hub.publications.publish(repository, "v1", sha, hub.who(name.partition("/")[0]))


@pytest.fixture
def three(hub: Stand, tmp_path: Path) -> RepositorySearch:
    """Three cards of ada."""
    publish(hub, tmp_path, "ada/moons", "What orbits the planets.", "science/astronomy")
    publish(hub, tmp_path, "ada/tides", "How moons move the sea.", "science/oceans", licence="cc-by-4.0")
    publish(hub, tmp_path, "ada/kings", "Rulers of Europe, über alles.", "history", base=Base("lab/base"))
    return RepositorySearch(hub.registry.database)


def names(search: RepositorySearch, query: SearchQuery) -> list[str]:
    return [repository.name for repository in search.find(query).repositories]


def test_words_of_names_descriptions_and_domains_are_found_by_their_beginning(
    three: RepositorySearch,
) -> None:
    assert names(three, SearchQuery(text="orbit")) == ["ada/moons"]
    assert names(three, SearchQuery(text="astronomy")) == ["ada/moons"]
    assert names(three, SearchQuery(text="uber ALL")) == ["ada/kings"]
    assert names(three, SearchQuery(text="rulers orbits")) == []
    assert names(three, SearchQuery(text='"*: -(')) == []


def test_a_word_of_the_name_is_more_relevant_than_one_of_the_description(three: RepositorySearch) -> None:
    assert names(three, SearchQuery(text="moon")) == ["ada/moons", "ada/tides"]


def test_facets_narrow_and_are_counted_with_the_rest_of_the_query(three: RepositorySearch) -> None:
    results = three.find(SearchQuery(facets={"domain": "science"}))
    assert {repository.name for repository in results.repositories} == {"ada/moons", "ada/tides"}
    assert results.total == 2
    assert results.counts.facets["licence"] == {"cc-by-4.0": 1, "mit": 1}
    # The facet itself is counted without its own choice.
    assert results.counts.facets["domain"] == {
        "science": 2,
        "history": 1,
        "science/astronomy": 1,
        "science/oceans": 1,
    }
    both = three.find(SearchQuery(text="moon", facets={"licence": "mit"}))
    assert [repository.name for repository in both.repositories] == ["ada/moons"]
    assert both.counts.facets["licence"] == {"cc-by-4.0": 1, "mit": 1}


def test_an_audit_verifies_and_a_removed_version_does_not_count(hub: Stand, three: RepositorySearch) -> None:
    assert three.find(SearchQuery(verified=True)).total == 0
    finding = AuditFinding("minilm", None, "atlas", "ab" * 32, "own", "cd" * 32, 0, None, 0.8, "{}")
    version = hub.registry.get("ada/moons")
    hub.registry.audits.add(version, finding)
    results = three.find(SearchQuery(verified=True, factuality=0.7))
    assert [repository.name for repository in results.repositories] == ["ada/moons"]
    assert results.counts.factuality == {0.5: 1, 0.7: 1, 0.9: 0}
    assert names(three, SearchQuery(sort="factuality"))[0] == "ada/moons"
    assert names(three, SearchQuery(factuality=0.5)) == ["ada/moons"]  # what others declare does not count
    hub.registry.remove("ada/moons@v1")
    assert three.find(SearchQuery(verified=True)).total == 0
    assert names(three, SearchQuery(text="orbits")) == []  # the description was that of the version


@pytest.mark.usefixtures("three")
def test_what_changes_is_found_at_once_also_by_other_processes(hub: Stand) -> None:
    other = RepositorySearch(hub.registry.database)
    assert other.find(SearchQuery()).total == 3
    moons = hub.repositories.get("model", "ada/moons")
    hub.repositories.move(moons, "ada/satellites")
    assert names(other, SearchQuery(text="satellites")) == ["ada/satellites"]
    hub.repositories.update(moons, private=True)
    assert other.find(SearchQuery()).total == 2
    assert other.find(SearchQuery(), hub.who("ada")).total == 3
    assert other.find(SearchQuery(), hub.who("eve")).total == 2
    tides = hub.repositories.get("model", "ada/tides")
    hub.repositories.count_download({tides.id: 5})
    assert names(other, SearchQuery(sort="downloads")) == ["ada/tides", "ada/kings"]
    hub.repositories.delete(tides)
    assert names(other, SearchQuery()) == ["ada/kings"]
    assert names(other, SearchQuery(text="moon")) == []


@pytest.mark.usefixtures("three")
def test_a_reader_that_began_earlier_gets_what_was_read_since(hub: Stand) -> None:
    index = SearchIndex()
    with hub.registry.database.read() as earlier:
        assert len(index.at(earlier).ids) == 3
        hub.make("ada/fourth")
        with hub.registry.database.read() as later:
            newest = index.at(later)
        assert len(newest.ids) == 4
        assert index.at(earlier) is newest


def test_pages_have_each_repository_once(three: RepositorySearch) -> None:
    seen = [name for page in (1, 2, 3, 4) for name in names(three, SearchQuery(size=1, page=page))]
    assert sorted(seen) == ["ada/kings", "ada/moons", "ada/tides"]
    assert three.find(SearchQuery(size=2)).pages == 2


@pytest.mark.parametrize("wrong", [{"sort": "luck"}, {"page": 0}, {"text": " ".join(map(str, range(30)))}])
def test_what_it_does_not_understand_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(Invalid, match=r"use 1 to|unknown sort|too many words"):
        SearchQuery(**wrong)  # type: ignore[arg-type]


@pytest.mark.usefixtures("three")
def test_a_backup_is_searched_where_it_was_restored(hub: Stand, tmp_path: Path) -> None:
    hub.registry.backup(tmp_path / "hub.tar")
    restored = Hub(tmp_path / "restored")
    with restored.database.write() as connection:  # a hub whose clock is ahead
        for _ in range(50):
            search_index.mark_changed(connection, [])
    before = RepositorySearch(restored.database)
    assert before.find(SearchQuery()).total == 0
    restored.restore(tmp_path / "hub.tar")
    assert names(before, SearchQuery(text="orbits")) == ["ada/moons"]
    with restored.database.read() as connection:
        assert connection.scalar(text("SELECT count(*) FROM search")) == 3


def test_the_manifest_is_not_needed_to_be_found(hub: Stand) -> None:
    repository = hub.make("ada/plain")
    hub.commit(repository, {"README.md": b"---\ntags: [rivers]\n---\n"})
    assert MANIFEST not in hub.commits.tree(repository, hub.refs.resolve(repository, "main"))
    assert names(RepositorySearch(hub.registry.database), SearchQuery(text="rivers")) == ["ada/plain"]
