"""Which language a question is in, where its few words tell."""

import pytest

from kcard.text import language_name, language_of_question


@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("Wo liegt die Konfigurationsdatei?", "de"),
        ("Wie viele Runlevels hat Linux?", "de"),
        ("¿Quién mantiene el FAQ de Debian?", "es"),
        ("Où se trouve le fichier de configuration ?", "fr"),
        ("Кто основал Debian?", "ru"),
        ("Where is the configuration file?", "en"),
        ("apt: freeze a package at its version", "en"),
        ("largest value for the joystick maxsteps", None),
        ("grep -R", None),
        ("", None),
    ],
)
def test_small_words_and_letters_tell_the_language_of_a_question(question: str, language: str | None) -> None:
    assert language_of_question(question) == language


def test_a_language_has_an_english_name() -> None:
    assert (language_name("pt-BR"), language_name("xx")) == ("Portuguese", None)
