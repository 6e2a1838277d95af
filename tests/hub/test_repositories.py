"""Repositories and searches of them: made, found, moved, deleted, liked, asked for. On both databases."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from kcard.hub import search_index
from kcard.hub.accounts import Identity
from kcard.hub.audits import AuditFinding
from kcard.hub.db.models import Repository
from kcard.hub.errors import Conflict, Invalid, NotFound, TooLarge
from kcard.hub.listing import SORTS, ListQuery
from kcard.hub.search import RepositorySearch, SearchIndex, SearchQuery
from kcard.manifest import Base
from tests.hub.postgres import BOTH
from tests.hub.stand import Stand, sealed, stand


@pytest.mark.parametrize("name", ["onco", "ada/", "ada/a/b", "ada/a--b", "ada/..", "ada/x.git", "api/x"])
def test_a_name_that_could_mean_something_else_is_refused(hub: Stand, name: str) -> None:
    with pytest.raises(Invalid):
        hub.repositories.create("model", 1, name, by=hub.who("ada"))


def test_what_is_deleted_is_gone_with_its_history_and_terms(hub: Stand) -> None:
    repository = hub.make("ada/onco")
    hub.repositories.delete(repository)
    with pytest.raises(NotFound) as error:
        hub.repositories.get("model", "ada/onco")
    assert error.value.what == "repository"
    with pytest.raises(NotFound):
        hub.refs.resolve(repository, "main")
    again = hub.make("ada/onco")
    assert again.head != repository.head
    assert hub.listing.page(ListQuery("model", search="onco"), None)[0] == [again]


def test_a_moved_repository_is_found_under_its_new_name_only(hub: Stand) -> None:
    repository = hub.make("ada/onco")
    moved = hub.repositories.move(repository, "EVE/cardio")
    assert moved.name == "eve/cardio"  # the account's own spelling
    assert moved.head == repository.head
    with pytest.raises(NotFound):
        hub.repositories.get("model", "ada/onco")
    assert hub.listing.page(ListQuery("model", author="eve", search="cardio"), None)[0] == [moved]
    assert hub.listing.page(ListQuery("model", search="onco"), None)[0] == []
    assert hub.repositories.move(moved, "eve/Cardio").name == "eve/Cardio"


def test_a_move_is_refused_to_a_taken_name_nobody_s_account_and_a_full_one(hub: Stand) -> None:
    repository = hub.make("ada/onco")
    hub.make("eve/there")
    with pytest.raises(Conflict):
        hub.repositories.move(repository, "eve/THERE")
    with pytest.raises(NotFound) as error:
        hub.repositories.move(repository, "nobody/onco")
    assert error.value.what == "account"
    hub.commit(repository, {"a.txt": b"a" * 1000})
    hub.accounts.update("eve", quota=500)
    with pytest.raises(TooLarge):
        hub.repositories.move(repository, "eve/onco")
    assert hub.repositories.get("model", "ada/onco").name == "ada/onco"


def test_downloads_add_up_and_those_of_a_deleted_repository_are_ignored(hub: Stand) -> None:
    repository = hub.make("ada/onco")
    hub.repositories.count_download({repository.id: 3, 999: 1})
    hub.repositories.count_download({repository.id: 2})
    assert hub.repositories.get("model", "ada/onco").downloads == 5


# Listings: what is found by which words and tags, in which order, by whom, page by page. On both databases.

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Shelf:
    """A hub with repositories put in by hand."""

    hub: Stand

    def put(self, name: str, *tags: str, day: int = 0, **values: Any) -> int:
        owner = self.hub.accounts.get(name.partition("/")[0]).id
        at = BEGAN + timedelta(days=day)
        row = {"type": "model", "created": at, "modified": at, "tags": tags, **values}
        repository = Repository(namespace_id=owner, name=name, folded=name.lower(), **row)
        with self.hub.registry.database.write() as session:
            session.add(repository)
            session.flush()
            search_index.replace_terms(session, repository.id, name, tags)
            search_index.update_rows(session, repository.id)
            return repository.id

    def page(self, who: Identity | None = None, **query: Any) -> tuple[list[Repository], str | None]:
        return self.hub.listing.page(ListQuery("model", **query), who)

    def names(self, who: Identity | None = None, **query: Any) -> list[str]:
        return [found.name for found in self.page(who, **query)[0]]

    def all(self, **query: Any) -> list[str]:
        """Every page, one after the other."""
        page, cursor = self.page(**query)
        names = [each.name for each in page]
        while cursor is not None:
            page, cursor = self.page(**query, cursor=cursor)
            names += [each.name for each in page]
        return names


@pytest.fixture
def shelf(tmp_path: Path, each_database: str | None) -> Iterator[Shelf]:
    with stand(tmp_path / "hub", each_database) as hub:
        yield Shelf(hub)


def test_what_is_found_by_which_words_tags_and_author(shelf: Shelf) -> None:
    shelf.put("ada/Onco-Llama_2", "license:mit", "en", day=1)
    shelf.put("ada/cardio", "license:mit", "de", "oncology", day=2)
    shelf.put("eve/cardio", "license:apache-2.0", "en", pipeline_tag="text-generation", day=3)
    shelf.put("eve/straße", "Text-Generation", day=4)
    shelf.put("eve/data", "license:mit", type="dataset")
    expected: list[tuple[dict[str, Any], Sequence[str]]] = [
        ({}, ["eve/straße", "eve/cardio", "ada/cardio", "ada/Onco-Llama_2"]),
        ({"search": "onco"}, ["ada/cardio", "ada/Onco-Llama_2"]),
        ({"search": "ONCO llam"}, ["ada/Onco-Llama_2"]),
        ({"search": "ada/onco-llama_2"}, ["ada/Onco-Llama_2"]),
        ({"search": "cardio eve"}, ["eve/cardio"]),
        ({"search": "ardio"}, []),
        ({"search": "straß"}, ["eve/straße"]),
        ({"search": "2"}, ["eve/cardio", "ada/Onco-Llama_2"]),  # apache-2.0 too
        ({"search": " "}, ["eve/straße", "eve/cardio", "ada/cardio", "ada/Onco-Llama_2"]),
        ({"search": "!!!"}, []),
        ({"search": "%"}, []),
        ({"filters": ["license:mit"]}, ["ada/cardio", "ada/Onco-Llama_2"]),
        ({"filters": ["License:MIT", "en"]}, ["ada/Onco-Llama_2"]),
        ({"filters": ["license:m"]}, []),
        ({"filters": ["en", "de"]}, []),
        ({"author": "ADA"}, ["ada/cardio", "ada/Onco-Llama_2"]),
        ({"author": "ad"}, []),
        ({"author": "eve", "search": "cardio"}, ["eve/cardio"]),
        ({"pipeline_tag": "text-generation"}, ["eve/straße"]),
    ]
    for query, names in expected:
        assert shelf.names(**query) == names, query
    assert shelf.hub.listing.page(ListQuery("dataset"), None)[0][0].name == "eve/data"


def test_every_order_goes_both_ways_and_its_pages_hold_everything_once(shelf: Shelf) -> None:
    order = [3, 1, 4, 1, 5, 3]
    values = {}
    for number, rank in enumerate(order):
        day = BEGAN + timedelta(days=rank)
        name = f"ada/c{number}"
        id_ = shelf.put(name, "en", created=day, modified=day, downloads=rank, likes=rank)
        values[name] = (rank, id_)
    rising = sorted(values, key=lambda name: values[name])
    for sort in SORTS:
        for filters in ([], ["en"]):
            for limit in (1, 4, 7):
                query = {"sort": sort, "limit": limit, "filters": filters}
                assert shelf.all(**query) == rising[::-1], query
                assert shelf.all(**query, direction=1) == rising, query


def test_what_comes_in_between_two_pages_makes_none_come_twice(shelf: Shelf) -> None:
    for number in range(6):
        shelf.put(f"ada/c{number}", day=number)
    first, cursor = shelf.page(limit=3)
    shelf.put("ada/new", day=99)
    with shelf.hub.registry.database.write() as session:  # one that was seen is changed
        seen = update(Repository).where(Repository.name == "ada/c4")
        session.execute(seen.values(modified=BEGAN + timedelta(days=100)))
        search_index.mark_changed(session, [first[1].id])
    second, end = shelf.page(limit=3, cursor=cursor)
    assert [r.name for r in (*first, *second)] == [f"ada/c{n}" for n in (5, 4, 3, 2, 1, 0)]
    assert end is None


def test_private_ones_are_listed_for_those_who_may_read_them(shelf: Shelf) -> None:
    lab = shelf.hub.accounts.add_organisation("lab", owner="eve")
    assert lab.name == "lab"
    for name in ("ada/hidden", "eve/hidden", "lab/hidden"):
        shelf.put(name, "en", visibility="private")
    shelf.put("eve/shown", "en", day=1)
    root = shelf.hub.who("root")
    ada = shelf.hub.who("ada")
    everything = {"eve/shown", "lab/hidden", "eve/hidden", "ada/hidden"}
    bound = replace(ada, repository_id=shelf.hub.repositories.get("model", "eve/shown").id)
    seen: list[tuple[Identity | None, set[str]]] = [
        (None, {"eve/shown"}),
        (ada, {"eve/shown", "ada/hidden"}),
        (shelf.hub.who("ada", Lab="read"), {"eve/shown", "ada/hidden", "lab/hidden"}),
        (bound, {"eve/shown"}),
        (root, everything),
        (replace(root, scope="write"), {"eve/shown"}),
    ]
    for who, names in seen:
        assert set(shelf.names(who, filters=["en"])) == set(shelf.names(who)) == names, who


# Search over names, domains, descriptions and tags, with facets and their counts, on both databases.


@pytest.fixture
def hub(tmp_path: Path, each_database: str | None) -> Iterator[Stand]:
    with stand(tmp_path / "home", each_database, exam_required=False) as hub:
        yield hub


def publish(
    hub: Stand, name: str, description: str, domain: str, licence: str = "mit", **values: Any
) -> None:
    """A card that nobody trained."""
    repository, own = hub.make(name), name.partition("/")[2]
    files = {
        "README.md": f"---\nlicense: {licence}\nlanguage: [en]\n---\n# {own}\n".encode(),
        "search.json": b'{"evidence": "wikipedia:en"}',
    }
    card = sealed(files, name=own, description=description, domain=domain, kind="search", **values)
    hub.publications.publish(
        repository, "v1", hub.commit(repository, card).sha, hub.who(repository.namespace)
    )


def publish_three(hub: Stand) -> RepositorySearch:
    """Three cards of ada."""
    publish(hub, "ada/moons", "What orbits the planets.", "science/astronomy")
    publish(hub, "ada/tides", "How moons move the sea.", "science/oceans", "cc-by-4.0")
    publish(hub, "ada/kings", "Rulers of Europe, über alles.", "history", base=Base("lab/base"))
    return RepositorySearch(hub.registry.database, SearchIndex())


@pytest.fixture
def three(hub: Stand) -> RepositorySearch:
    return publish_three(hub)


@pytest.fixture(scope="module", params=BOTH)
def unchanged(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RepositorySearch]:
    """Three cards that tests share."""
    url, folder = None, tmp_path_factory.mktemp("hub")
    if request.param == "postgresql":
        url = request.getfixturevalue("cluster").create(request.getfixturevalue("new_hub"))
    with stand(folder / "home", url, exam_required=False) as hub:
        yield publish_three(hub)


def names(search: RepositorySearch, query: SearchQuery) -> list[str]:
    return [repository.name for repository in search.find(query).repositories]


def test_words_of_names_descriptions_and_domains_are_found_by_their_beginning(
    unchanged: RepositorySearch,
) -> None:
    assert names(unchanged, SearchQuery(text="orbit")) == ["ada/moons"]
    assert names(unchanged, SearchQuery(text="astronomy")) == ["ada/moons"]
    assert names(unchanged, SearchQuery(text="uber ALL")) == ["ada/kings"]
    assert names(unchanged, SearchQuery(text="rulers orbits")) == []
    assert names(unchanged, SearchQuery(text='"*: -(')) == []


def test_a_word_of_the_name_is_more_relevant_than_one_of_the_description(unchanged: RepositorySearch) -> None:
    assert names(unchanged, SearchQuery(text="moon")) == ["ada/moons", "ada/tides"]


def test_facets_narrow_and_are_counted_with_the_rest_of_the_query(unchanged: RepositorySearch) -> None:
    results = unchanged.find(SearchQuery(facets={"domain": "science"}))
    assert {repository.name for repository in results.repositories} == {"ada/moons", "ada/tides"}
    assert results.total == 2
    assert results.counts.facets["licence"] == {"cc-by-4.0": 1, "mit": 1}
    # The facet itself is counted without its own choice.
    domains = {"science": 2, "history": 1, "science/astronomy": 1, "science/oceans": 1}
    assert results.counts.facets["domain"] == domains
    both = unchanged.find(SearchQuery(text="moon", facets={"licence": "mit"}))
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
    other = RepositorySearch(hub.registry.database, SearchIndex())
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
        assert len(index.at(earlier)["id"]) == 3
        hub.make("ada/fourth")
        with hub.registry.database.read() as later:
            newest = index.at(later)
        assert len(newest["id"]) == 4
        assert index.at(earlier) is newest


def test_pages_have_each_repository_once(unchanged: RepositorySearch) -> None:
    seen = [name for page in (1, 2, 3, 4) for name in names(unchanged, SearchQuery(size=1, page=page))]
    assert sorted(seen) == ["ada/kings", "ada/moons", "ada/tides"]
    assert unchanged.find(SearchQuery(size=2)).pages == 2


def test_a_repository_without_a_card_is_found_too(hub: Stand) -> None:
    hub.commit(hub.make("ada/plain"), {"README.md": b"---\ntags: [rivers]\n---\n"})
    assert names(RepositorySearch(hub.registry.database, SearchIndex()), SearchQuery(text="rivers")) == [
        "ada/plain"
    ]
