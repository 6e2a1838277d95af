"""Wikipedia as evidence, against a local wiki that speaks its API: paragraphs, patience, memory, plain refusals."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Lock
from typing import Any

import pytest

from kcard.errors import CorpusError, UsageError
from kcard.selectors.evidence import Union, open_evidence
from kcard.selectors.wikipedia import open_wikipedia
from tests.selectors.mediawiki_server import Wiki, serving

PAGES = {
    "Ron Wyden": "Ron Wyden is an American politician.\n\n== Career ==\nHe won the 2022 senate race in Oregon.\n"
    "Before that he taught gerontology.",
    "Oregon": "Oregon is a state in the Pacific Northwest.\n== Politics ==\nRon Wyden is one of its senators.",
    "Helium": "Helium is a noble gas with the atomic number 2.",
    "Bern": "Bern ist die Hauptstadt der Schweiz.",
}
CLAIM = "Ron Wyden won the 2022 senate race in Oregon."


@pytest.fixture
def wiki(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wiki]:
    monkeypatch.delenv("HF_HUB_OFFLINE")
    with serving(PAGES) as found:
        yield found


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was waited, instead of waiting."""
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    monkeypatch.setattr(time, "monotonic", lambda: float(sum(found)))
    return found


def test_the_paragraph_that_fits_best_comes_first_with_title_address_and_number(wiki: Wiki) -> None:
    evidence = open_evidence(f"wikipedia:{wiki.api}")
    best, second = evidence.find(CLAIM, 2)
    assert best.text == "Ron Wyden: He won the 2022 senate race in Oregon."
    assert best.file == "Ron Wyden, http://wiki.example/wiki/Ron_Wyden?oldid=7000"
    assert best.line == 2
    assert best.score > second.score > 0
    assert evidence.find(CLAIM, 0) == []


def test_the_text_of_every_page_is_fetched_as_the_api_continues(wiki: Wiki) -> None:
    found = open_evidence(f"wikipedia:{wiki.api}").find("Ron Wyden of Oregon", 9)
    assert {source.file.partition(",")[0] for source in found} == {"Ron Wyden", "Oregon"}
    assert [asked.get("excontinue") for asked in wiki.requests] == [None, "1"]


def test_where_no_page_holds_all_words_those_with_the_names_are_taken(wiki: Wiki) -> None:
    claim = "Senator Wyden, a Martian, was thrice elected emperor of Oregon"
    found = open_evidence(f"wikipedia:{wiki.api}").find(claim, 9)
    assert {source.file.partition(",")[0] for source in found} == {"Ron Wyden", "Oregon"}
    first, second = (asked["gsrsearch"] for asked in wiki.requests[:2])
    assert first == "senator wyden martian thrice elected emperor oregon"
    assert second == "senator OR wyden OR martian OR oregon"


@pytest.mark.parametrize("claim", ["Zanzibar qwertz", "?!", "", "知らない" * 400, "word " * 3000])
def test_what_is_on_no_page_is_not_found(wiki: Wiki, claim: str) -> None:
    assert open_evidence(f"wikipedia:{wiki.api}").find(claim, 3) == []
    assert all(len(asked["gsrsearch"]) <= 300 for asked in wiki.requests)


def test_signs_that_the_search_takes_for_commands_are_left_out(wiki: Wiki) -> None:
    open_evidence(f"wikipedia:{wiki.api}").find('Helium -gas intitle:"noble" insource:/x/ NOT* ~2 OR', 3)
    assert wiki.requests[0]["gsrsearch"] == "helium intitle noble insource not 2 or"


def test_requests_follow_the_etiquette(wiki: Wiki) -> None:
    open_evidence(f"wikipedia:{wiki.api}").find("Helium", 1)
    assert wiki.agents[0].startswith("kcard/")
    assert "(https://" in wiki.agents[0]
    assert wiki.requests[0]["maxlag"] == "5"


def test_a_claim_is_asked_for_once_and_again_when_the_reply_is_old(wiki: Wiki, home: Path) -> None:
    first = open_evidence(f"wikipedia:{wiki.api}").find("Helium", 1)
    assert open_evidence(f"wikipedia:{wiki.api}").find("Helium", 1) == first
    assert len(wiki.requests) == 1
    age(home, days=31)
    wiki.pages["Helium"] = "Helium is the lightest noble gas."
    assert open_evidence(f"wikipedia:{wiki.api}").find("Helium", 1) != first


def age(home: Path, days: float) -> None:
    for path in (home / "evidence").rglob("*.json"):
        kept = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({**kept, "asked": time.time() - days * 86_400}), encoding="utf-8")


def test_an_old_reply_is_better_than_none_and_that_is_said(
    wiki: Wiki, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_evidence(f"wikipedia:{wiki.api}").find("Helium", 1)
    age(home, days=99)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    evidence = open_wikipedia(wiki.api)
    assert evidence.find("Helium", 1) == first
    assert "could not be reached; cached replies of 20" in evidence.notes[1]


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"asked": 1}', '{"asked": "x", "reply": {}}'])
def test_a_damaged_memory_is_asked_for_again(wiki: Wiki, home: Path, damage: str) -> None:
    first = open_evidence(f"wikipedia:{wiki.api}").find("Helium", 1)
    for path in (home / "evidence").rglob("*.json"):
        path.write_text(damage, encoding="utf-8")
    assert open_evidence(f"wikipedia:{wiki.api}").find("Helium", 1) == first
    assert len(wiki.requests) == 2


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        (["429:7", "429:2"], [7, 2]),
        (["503", "500", "503:3"], [1, 2, 3]),
        (["maxlag:5", "maxlag:6"], [5, 6]),
        (["ratelimited"], [5]),
        (["junk", "list", "half", "silent"], [1, 2, 4, 8]),
    ],
)
def test_passing_troubles_are_waited_out_as_long_as_the_wiki_says(
    wiki: Wiki, waits: list[float], faults: list[str], expected: list[float]
) -> None:
    wiki.faults[:] = faults
    assert open_evidence(f"wikipedia:{wiki.api}").find("Helium", 1)
    assert waits == expected


def test_retry_after_may_be_a_date(wiki: Wiki, waits: list[float]) -> None:
    import email.utils

    wiki.faults[:] = ["503:" + email.utils.formatdate(time.time() + 30, usegmt=True)]
    open_evidence(f"wikipedia:{wiki.api}").find("Helium", 1)
    assert 25 < waits[0] <= 30


@pytest.mark.parametrize(
    ("faults", "message", "tries"),
    [
        (["429:3600"], "status 429: try again in 3600 s", 1),
        (["503"] * 9, "status 503: try again later", 5),
        (["junk"] * 9, "sent no JSON", 5),
        (["half"] * 9, "broke off", 5),
        (["404"], "status 404 .*is it the URL of an api.php", 1),
    ],
)
def test_lasting_troubles_are_one_line_that_says_what_to_do(
    wiki: Wiki, waits: list[float], faults: list[str], message: str, tries: int
) -> None:
    wiki.faults[:] = faults
    with pytest.raises(CorpusError, match=message) as caught:
        open_evidence(f"wikipedia:{wiki.api}").find("Helium", 1)
    assert "\n" not in str(caught.value)
    assert len(wiki.requests) == tries == len(waits) + 1


def test_a_refused_query_and_a_wrong_address_are_said_at_once(wiki: Wiki, waits: list[float]) -> None:
    with pytest.raises(CorpusError, match="Unrecognized value"):
        open_wikipedia(wiki.api).wiki.get(action="nothing")
    with pytest.raises(CorpusError, match="status 404"):
        open_evidence(f"wikipedia:{wiki.api}x").find("Helium", 1)
    with pytest.raises(CorpusError, match=r"can't be reached .*check the network"):
        open_evidence("wikipedia:http://127.0.0.1:9/w/api.php").find("Helium", 1)
    assert waits == []


def test_offline_nothing_is_asked_and_that_is_said(wiki: Wiki, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(CorpusError, match="HF_HUB_OFFLINE is set: unset it"):
        open_evidence(f"wikipedia:{wiki.api}").find("Helium", 1)
    assert wiki.requests == []


def test_no_room_for_the_memory_is_no_trouble(wiki: Wiki, home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "evidence").write_text("in the way", encoding="utf-8")
    assert open_evidence(f"wikipedia:{wiki.api}").find("Helium", 1)


def test_odd_replies_find_nothing(wiki: Wiki, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = [{}, {"query": []}, {"query": {"pages": {"7": {}}}}, {"query": {"pages": [None, {"pageid": "x"}]}}]
    for reply in odd:
        monkeypatch.setattr(wiki, "reply", lambda _, reply=reply: reply)
        assert open_evidence(f"wikipedia:{wiki.api}").find(f"Helium {odd.index(reply)}", 3) == []


def test_languages_and_addresses_name_the_wiki() -> None:
    assert open_wikipedia().name == open_wikipedia("en").name == "wikipedia:en"
    german = open_wikipedia("de")
    assert german.wiki.api == "https://de.wikipedia.org/w/api.php"
    assert german.licence == "CC BY-SA 4.0"
    assert german.notes == ("evidence wikipedia:de: queries are sent to de.wikipedia.org",)
    assert german.digest != open_wikipedia("fr").digest
    for wrong in ("EN", "en.evil.com", "https://", "https://w/api.php?x=1", "deutsch/../en"):
        with pytest.raises(UsageError, match="wikipedia:"):
            open_wikipedia(wrong)


def test_several_claims_are_looked_up_at_a_time_with_the_same_results_in_order(wiki: Wiki) -> None:
    claims = [CLAIM, "Helium is a noble gas.", "Nothing about Xyzzy", CLAIM, "Oregon is a state."]
    evidence = open_evidence(f"wikipedia:{wiki.api}")
    together = evidence.find_all(claims, 2)
    wiki.requests.clear()
    assert together == [evidence.find(claim, 2) for claim in claims]
    assert together[0][0].text == "Ron Wyden: He won the 2022 senate race in Oregon."
    assert together[2] == []
    assert Union([evidence, evidence]).find_all(claims, 2) == together


def test_at_most_three_claims_are_looked_up_at_a_time(wiki: Wiki, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, running, most, met = Lock(), [0], [0], Event()
    reply = Wiki.reply

    def slow(self: Wiki, asked: dict[str, str]) -> dict[str, Any]:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
            if running[0] == 3:
                met.set()
        # The first ones wait until three run; then there is time for a fourth.
        met.wait(30)
        time.sleep(0.01)
        with lock:
            running[0] -= 1
        return reply(self, asked)

    monkeypatch.setattr(Wiki, "reply", slow)
    open_evidence(f"wikipedia:{wiki.api}").find_all([f"helium {n}" for n in range(9)], 1)
    assert most[0] == 3


def test_all_requests_wait_while_the_wiki_wants_one_to_wait(wiki: Wiki) -> None:
    evidence = open_evidence(f"wikipedia:{wiki.api}")
    wiki.faults.append("429:1")
    started = time.monotonic()
    evidence.find_all(["Helium", "Bern", "Oregon", "Ron Wyden"], 1)
    assert time.monotonic() - started >= 1
