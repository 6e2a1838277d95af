"""Private data is found in the forms that people write it in, and prose is left alone."""

import json
from pathlib import Path

import pytest

from kcard.evaluation.privacy import PrivateFinding, find_home_folders, find_private_data, mask

ROOT = Path(__file__).resolve().parents[2]

EMAILS = [
    "Write to ada.lovelace@analytical-engines.org for details.",
    "Mail: <grace+navy@cobol.mil>",
    "contact=ALAN@BLETCHLEY.UK;",
    "You can reach me at j_o'neil@mail.dublin.ie.",
    "kontakt: müller@köln-verein.de",
    "mailto:first.last@sub.domain.co.uk?subject=hi",
    "Her address is anna (at) posteo (dot) de, please be kind.",
    "anna[at]posteo[dot]de",
    "anna [at] posteo.de",
    '{"owner": "x9@startups.io"}',
    "Ana,Silva,ana.silva@empresa.com.br,1989",
    "a@b.cc",
]
PHONES = [
    "+41 44 668 18 00",
    "Call +1 650-253-0000 before noon.",
    "+49 (0)30 227-0",
    "0041 44 668 18 00",
    "Tel. +44 20 7031 3000",
    "+33 1 42 34 20 00",
    "WhatsApp: +91 98765 43210",
    "reach us at (650) 253-0000",
    "Phone 650-253-0000",
    "phone: 650.253.0000",
    "My mobile is 07911 123456.",
    "Call 020 7031 3000 between nine and five",
]
GERMAN_PHONES = [
    "Tel. 030 227 32152",
    "Sie erreichen mich unter 0171 1234567",
    "Telefon: 089/2180-0",
    "Ruf 044 668 18 00",
]
B36 = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
KEYS = [
    "AKIA" + "IOSFODNN7EXAMPLE",
    "export AWS_KEY=" + "ASIA" + "Y34FZKBOKMUTVV7A",
    "token gh" + "p_" + B36,
    "github_" + "pat_" + B36 + B36,
    "glpat" + "-abcdefghij1234567890",
    "login with hf" + "_abcdefghijklmnopqrstuvwxyzABCDEFGH",
    "sk-" + "ant-api03-" + B36,
    "OPENAI_API_KEY=sk-" + "proj-" + B36,
    "sk-" + B36 + "abcdefgh",
    "AIza" + "SyA1234567890abcdefghijklmnopqrstuv",
    "xox" + "b-123456789012-1234567890123-abcdefghijklmnopqrstuvwx",
    "sk" + "_live_4eC39HqLyjWDarjtT1zdp7dc",
    "SG." + "abcdefghijklmnopqrstuv.abcdefghijklmnopqrstuvwxyz0123456789",
    "npm" + "_" + B36,
    "-----BEGIN RSA " + "PRIVATE KEY-----",
    "-----BEGIN OPENSSH " + "PRIVATE KEY-----",
    "-----BEGIN " + "PRIVATE KEY-----",
    "-----BEGIN PGP " + "PRIVATE KEY BLOCK-----",
    "bearer ey" + "JhbGciOiJIUzI1NiJ9.ey" + "JzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0",
    "postgres://bob:s3cret-pw@db.internal/x",
    "https://deploy:tr0ub4dor@git.corp.net/repo.git",
    'password = "hunter2horse9"',
    "The password is Xk29-mmPq!7z",
    "api_key: 9f8e7d6c5b4a39281706",
    "client-secret='Zq8~abc123DEF456ghi'",
    "PASSWD=correct4horse7battery",
]
CARDS = ["4111 1111 1111 1111", "paid with 5500-0055-5555-5559", "378282246310005", "card 6011000990139424"]
ACCOUNTS = ["DE89 3704 0044 0532 0130 00", "IBAN: GB82WEST12345698765432", "CH93 0076 2011 6238 5295 7"]

POSITIVES = (
    [("e-mail address", text, "en") for text in EMAILS]
    + [("phone number", text, "en") for text in PHONES]
    + [("phone number", text, "de") for text in GERMAN_PHONES]
    + [("key or password", text, "en") for text in KEYS]
    + [("payment card number", text, "en") for text in CARDS]
    + [("bank account number", text, "en") for text in ACCOUNTS]
)

NEGATIVES = [
    "In 2022 she won 1,234,567 votes against 1,198,345 (50.7 to 49.3 percent).",
    "The score was 24-10 at half time; attendance 71,088.",
    "ISBN 978-0-306-40615-7, ISSN 2049-3630, arXiv:2305.09955",
    "The catalogue number is 6504253871 and the invoice 2023-0045-1189.",
    "Commit 3f9a1c2b4d5e6f708192a3b4c5d6e7f801234567 fixes it.",
    "sha256 53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "From 1914-1918 and 1939-1945; see pp. 1024-1048.",
    "GDP grew to 4 111 111 111 111 111 dollars in the model.",
    "The number of people is 7000000000.",
    "Write to nobody@example.com or user@host.example.",
    "Use icon@2x.png and logo@3x.png; clone git@github.com:owner/repo.git",
    "The password must have at least twelve characters.",
    "The secret: patience. Password: required. Token: whitespace",
    "token = tokenizer.next()",
    "The latitude is 47.3768866, the longitude 8.541694.",
    "He said he would meet @home at 7.",
    "a call to 10.0.0.1:8080 on 192.168.100.200",
    "Version 3.11.7 of 2023-12-04 12:30:45.123456",
    "isotope ratios 1234 5678 9012 3456 and 1111 1111 1111 1111",
    "The DNA begins GATTACA12 3456 7890 1234",
    "Apollo 11 landed on 20 July 1969 at 20:17:40 UTC, 102:45:40 into the flight",
    "Number 1234567890 of 9876543210",
    "the task-sk-is-a-very-long-identifier-with-words stays",
]


@pytest.mark.parametrize(("kind", "text", "language"), POSITIVES)
def test_private_data_is_found(kind: str, text: str, language: str) -> None:
    assert [match.kind for match in find_private_data(text, language)] == [kind]


@pytest.mark.parametrize("text", NEGATIVES)
@pytest.mark.parametrize("language", ["en", "de"])
def test_what_only_looks_like_it_is_left_alone(text: str, language: str) -> None:
    assert find_private_data(text, language) == []


def test_the_demo_corpora_hold_nothing_private() -> None:
    lines = [
        line
        for path in sorted((ROOT / "demo" / "corpora").rglob("*.txt"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    assert len(lines) > 1000
    assert [match for line in lines for match in find_private_data(line)] == []


def test_a_match_says_where_it_stands() -> None:
    text = "Ask ada@analytical.org or call +41 44 668 18 00."
    assert [text[m.start : m.end] for m in find_private_data(text)] == [
        "ada@analytical.org",
        "+41 44 668 18 00",
    ]


def test_what_is_shown_of_it_can_not_be_used() -> None:
    assert "ada@lovelace.org" not in repr(PrivateFinding("e-mail address", "ada@lovelace.org", "a.txt"))
    secret = "sk-" + "ant-api03-" + B36
    assert mask(secret) == "sk…8"
    assert mask("a@b.") == mask("a \n b") == "…"
    assert len(mask("ada@analytical.org")) == 4


def test_a_path_that_names_a_user_is_found() -> None:
    command = json.dumps("kcard train --corpus /home/ada/notes --output C:\\Users\\Grace\\out")
    assert [m.text for m in find_home_folders(command)] == ["/home/ada", "C:\\\\Users\\\\Grace"]
    assert list(find_home_folders("kcard train --corpus notes/home/x --output /data/out")) == []
