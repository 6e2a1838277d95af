"""Names that would make a URL mean two things, and what tells a private repository from a missing one."""

import functools
import re
import statistics
import time
from collections.abc import Iterator

import pytest
from sqlalchemy import event
from starlette.routing import Match, Route

from kcard.hub.accounts import AMBIGUOUS, RESERVED, TAKEN, check_namespace, check_unambiguous
from kcard.hub.db.models import Repository
from kcard.hub.errors import Invalid
from kcard.hub.server.app import PAGES, ROUTERS
from tests.hub.shared_hub import Shared, shared_hub
from tests.hub.stand import recorded_statements

ROUTES = [route for router in ROUTERS for route in router.routes if isinstance(route, Route)]
WORDS = {part for route in ROUTES for part in route.path.split("/") if part and "{" not in part}
USUAL = {"types": "models", "namespace": "ada", "name": "card", "revision": "main", "path": "a/b.txt"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """bob/card, and bob/hidden, a private repository with much metadata."""
    with shared_hub(tmp_path_factory.mktemp("hub")) as hub:
        hub.create("bob/card")
        hub.create("bob/hidden", private=True)
        items = "".join(f"- {'word' * 10} {number}\n" for number in range(2000))
        hub.put("bob/hidden", {"README.md": f"---\nitems:\n{items}---\n".encode()})
        yield hub


@functools.cache
def reached(place: int, method: str, **parameters: str) -> str | None:
    """The template of the first route that answers the path of the one at this place."""
    values = {**USUAL, **parameters}
    path = re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: values.get(found[1], "x"), ROUTES[place].path)
    scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}
    return next((other.path for other in ROUTES if other.matches(scope)[0] is Match.FULL), None)


def ambiguous(**parameters: str) -> bool:
    """Whether a path with these parameters reaches another route than usual."""
    return any(
        reached(place, method, **parameters) != reached(place, method)
        for place, route in enumerate(ROUTES)
        for method in route.methods or ()
        if "{namespace}" in route.path and any(f"{{{name}" in route.path for name in parameters)
    )


def test_every_name_that_makes_a_url_ambiguous_is_refused() -> None:
    assert {word for word in WORDS if ambiguous(name=word)} <= AMBIGUOUS
    assert {word for word in WORDS if ambiguous(namespace=word)} <= AMBIGUOUS | RESERVED
    assert "resolve" in {word for word in WORDS if ambiguous(name=word)}
    for kind in ("revision", "branch", "tag", "path"):  # they have a segment of their own
        assert not [word for word in WORDS if ambiguous(**{kind: word})]


@pytest.mark.parametrize("name", [*sorted(AMBIGUOUS), "Resolve"])
def test_such_a_name_is_refused_for_new_repositories_and_accounts(shared: Shared, name: str) -> None:
    client = shared.http("bob")
    answer = client.post("/api/repos/create", json={"name": name})
    assert answer.status_code == 400
    assert f"name {name!r} is reserved" in answer.json()["error"]
    moved = client.post("/api/repos/move", json={"fromRepo": "bob/card", "toRepo": f"bob/{name}"})
    assert moved.status_code == 400
    with pytest.raises(Invalid, match="is reserved"):
        shared.hub.accounts.add_user(name)


def test_every_first_segment_of_a_route_is_reserved() -> None:
    routes = [route for router in (*ROUTERS, *PAGES) for route in router.routes if isinstance(route, Route)]
    first = {route.path.split("/")[1] for route in routes}
    segments = {segment for segment in first if segment and not segment.startswith("{")}
    assert segments <= RESERVED | TAKEN
    assert {"api", "feed.atom", "favicon.ico"} <= segments
    for name in segments:
        with pytest.raises(Invalid, match="is reserved"):
            check_unambiguous(check_namespace(name), account=True)


@pytest.mark.parametrize("name", ["ask", "Compare", "leaderboard", "feed.atom", "robots.txt"])
def test_an_account_is_not_called_like_a_page_of_the_hub_but_a_repository_may_be(
    shared: Shared, name: str
) -> None:
    with pytest.raises(Invalid, match="is reserved"):
        shared.hub.accounts.add_user(name)
    assert shared.http("bob").post("/api/repos/create", json={"name": name}).status_code == 200


def test_a_repository_of_before_with_such_a_name_keeps_working(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr("kcard.hub.accounts.AMBIGUOUS", set())
        shared.create("bob/raw")
    shared.put("bob/raw", {"README.md": b"# Raw\n"})
    client = shared.http("bob")
    assert client.get("/bob/raw/resolve/main/README.md").text == "# Raw\n"
    assert client.post("/api/repos/create", json={"name": "raw"}).status_code == 409
    moved = client.post("/api/repos/move", json={"fromRepo": "bob/raw", "toRepo": "lab/raw"})
    assert moved.status_code == 200
    deleted = client.request("DELETE", "/api/repos/delete", json={"name": "raw", "organization": "lab"})
    assert deleted.status_code == 200


@pytest.mark.parametrize("who", [None, "dan"])
def test_a_private_repository_takes_the_same_work_as_a_missing_one(shared: Shared, who: str | None) -> None:
    read: list[object] = []

    def noted(row: Repository, _context: object) -> None:
        read.append(row)

    event.listen(Repository, "load", noted)
    runs = []
    for name in ("hidden", "absent"):
        with recorded_statements() as statements:
            assert shared.http(who).get(f"/api/models/bob/{name}").status_code in {401, 404}
        runs.append(statements)
    assert runs[0] == runs[1]
    assert read == []
    assert shared.http("bob").get("/api/models/bob/hidden").status_code == 200
    assert read != []


@pytest.mark.slow
def test_a_private_repository_takes_the_same_time_as_a_missing_one(shared: Shared) -> None:
    """300 requests each, in turns. Tolerant, since machines are busy; a difference of a parsed card is larger."""
    client = shared.http("dan")
    taken: dict[str, list[float]] = {"hidden": [], "absent": []}
    for _ in range(300):
        for name, times in taken.items():
            begun = time.perf_counter()
            client.get(f"/api/models/bob/{name}")
            times.append(time.perf_counter() - begun)
    quick = {name: statistics.quantiles(times, n=4)[0] for name, times in taken.items()}
    assert quick["hidden"] < 1.25 * quick["absent"]
