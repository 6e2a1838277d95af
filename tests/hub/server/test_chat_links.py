"""A hub that knows where the page to ask is links to it; another does not mention it."""

from pathlib import Path

import pytest

from kcard.hub.server.dependencies import ServerOptions
from tests.hub.server.sample_cards import fill
from tests.hub.server.test_pages import get
from tests.hub.shared_hub import shared_hub

CHAT = "https://ask.example.org/"


@pytest.mark.parametrize("chat", [CHAT, None])
def test_the_menu_and_a_cards_example_questions_lead_to_the_page_to_ask(
    tmp_path: Path, chat: str | None
) -> None:
    with shared_hub(tmp_path, ServerOptions(chat=chat), exam_required=False) as shared:
        fill(shared, tmp_path / "cards")
        home, card = get(shared, "/"), get(shared, "/lab/moons")
    assert (f'href="{CHAT}"' in home) == bool(chat)
    assert (f'href="{CHAT}?card=moons&amp;q=Who+discovered+the+moon+Phoebe%3F"' in card) == bool(chat)
    assert "Ask it" in card
