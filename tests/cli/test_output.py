"""Control characters in what others wrote are shown, not obeyed: in answers, tables, notes and JSON."""

import ast
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from kcard.cli.ask import show
from kcard.cli.output import (
    WordWriter,
    console,
    echo,
    note,
    print_in_parts,
    print_json,
    print_words,
    table,
)
from kcard.errors import json_escaped, printable
from kcard.hub.registry import Hub
from kcard.types import Answer, Citation, Decision, Passage, Source
from tests.command import Kcard
from tests.hub.client.cards import rivers

ATTACK = "\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202e\u2028"
CLI = Path(__file__).resolve().parents[2] / "cli"


def harmless(text: str) -> bool:
    return text.replace("\n", "").isprintable()


@pytest.mark.parametrize("trace", [False, True])
def test_a_passage_of_a_card_does_not_reach_the_terminal(
    capsys: pytest.CaptureFixture[str], trace: bool
) -> None:
    source = Source(f"The Rhine {ATTACK}", f"{ATTACK}.md", 3, section=ATTACK)
    passage = Passage(
        "rivers", f"The Rhine {ATTACK}", pruned=ATTACK, source=source, evidence=source, kept=True
    )
    cited = (Citation(f"The Rhine {ATTACK}", 0, 1.0),)
    gate = Decision(ATTACK, 0.0, True)
    show(Answer("q", f"a {ATTACK}", "direct", gate, (), (passage,), citations=cited, nearest=source), trace)
    written = capsys.readouterr().out
    assert harmless(written)
    assert "\\x1b]0;owned" in written


def test_a_description_is_text_and_no_markup(home: Path, tmp_path: Path, kcard: Kcard) -> None:
    text = "[link=https://evil.example]Rivers[/link] [blink]of[/blink] Europe"
    Hub(home).publish(rivers(tmp_path / "card", description=text).folder)
    assert text in kcard("show", "rivers").out


def test_tables_notes_and_lines_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    rows = table("card", "[bold]what[/bold]")
    rows.add_row(ATTACK, f"[red]{ATTACK}")
    console().print(rows)
    echo(f"first\n{ATTACK}")
    note(ATTACK)
    written = capsys.readouterr()
    assert harmless(written.out + written.err)
    assert written.out.endswith(f"first\n{printable(ATTACK)}\n")


def test_json_keeps_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({ATTACK: [ATTACK, "Zürich"]})
    written = capsys.readouterr().out
    assert harmless(written)
    assert json.loads(written) == {ATTACK: [ATTACK, "Zürich"]}
    assert "Zürich" in written


@given(st.text())
def test_any_text_is_escaped_and_any_json_stays_the_same(text: str) -> None:
    assert not set(printable(text)) & set("\x1b\x07\r\x7f\x9b\u202e\u2028")
    assert json.loads(json_escaped(json.dumps(text, ensure_ascii=False))) == text


@pytest.mark.parametrize("text", ["नमस्\u200dते", "می\u200cخواهم", "👩\u200d🔬", "a\tb\nc", "שלום\u200f"])
def test_what_scripts_need_stays(text: str) -> None:
    assert printable(text) == text


def test_every_command_prints_through_the_module_that_escapes() -> None:
    direct = [
        f"{path.name}:{node.lineno}"
        for path in sorted(CLI.glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("print", "typer.echo", "typer.secho", "sys.stdout.write", "Console")
        and path.name != "output.py"
    ]
    assert direct == []


@pytest.mark.parametrize("width", [40, 80, 160])
def test_a_table_that_is_wider_than_the_terminal_is_printed_in_parts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    headings = ["setting", *(f"figure [{n}]" for n in range(8))]
    rows = [
        [name, *(f"[{0.1 * n:.3f}, {0.2 * n:.3f}]" for n in range(8))]
        for name in ("direct", "bottom-up@always")
    ]
    print_in_parts(headings, rows)
    lines = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= width
    assert all(any(cell in line for line in lines) for cell in [*headings, *rows[0], *rows[1]])
    parts = sum(line.startswith("setting") for line in lines)
    assert parts == {40: 8, 80: 2, 160: 1}[width]
    assert len(lines) == 3 * parts
    monkeypatch.setattr("sys.stdout.isatty", lambda: False)
    print_in_parts(headings, [[f"{cell} and more" for cell in row] for row in rows])
    assert len(capsys.readouterr().out.splitlines()) == 3, "there is no terminal: one part, however wide"


@pytest.mark.parametrize("command", [("cards", "list"), ("cards", "search", "seas"), ("browse",)])
def test_an_empty_hub_is_no_error_and_tells_how_to_begin(
    kcard: Kcard, command: tuple[str, ...], tmp_path: Path
) -> None:
    for options in ((), ("--domain", "rivers")):
        done = kcard(*command, *options)
        assert done.code == 0
        assert "no card is published yet: ask a folder" in done.err
    Hub().publish(rivers(tmp_path / "card").folder)
    assert kcard(*command, "--domain", "seas").err.strip() == "no card matches"


LINE = "A keeper of the lighthouse of Port Ansel writes a report of every ship, and 灯台 is its name in Japan.\n- x"


@pytest.mark.parametrize("width", [20, 37, 80, 120])
@pytest.mark.parametrize("pieces", [1, 7, 500])
def test_words_never_break_in_the_middle(
    width: int, pieces: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    writer = WordWriter()
    size = -(-len(LINE) // pieces)
    for start in range(0, len(LINE), size):
        writer.write(LINE[start : start + size])
    writer.end()
    print_words(f"[bold]{LINE}[/bold]", 4)
    lines = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert " ".join(lines).split() == LINE.split() * 2
    assert "- x" in lines
    assert "    - x" in lines


def test_without_a_terminal_nothing_is_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(["word"] * 100)
    writer = WordWriter()
    writer.write(text)
    writer.end()
    print_words(text, 4)
    assert capsys.readouterr().out == f"{text}\n{text}\n"


def test_an_answer_its_numbered_sources_warnings_and_figures_are_each_printed_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sources = [Source("x", f"{name}.md", 3, section=name) for name in ("rhine", "elbe")]
    passages = [Passage("rivers", f"The {s.section} is long.", kept=True, source=s) for s in sources]
    passages.append(Passage("rivers", "It is dry.", reason="its corpus says otherwise"))
    cited = (Citation("The rhine", 0, 1.0), Citation("It is blue."), Citation("The elbe", 1, 1.0))
    answer = Answer("q", "The rhine. It is blue. The elbe.", "top-down", Decision("always", 0.0, True))
    answer = replace(answer, cards=("rivers",), passages=(*passages,), citations=cited, confidence=0.5)
    show(answer, llm="a model")
    assert capsys.readouterr().out.splitlines() == [
        "The rhine. It is blue. The elbe.",
        '[1] "The rhine is long." <- rivers (retrieval) <- rhine.md:3',
        '[2] "The elbe is long." <- rivers (retrieval) <- elbe.md:3',
        "warning: not in the cards: It is blue.",
        "a model · confidence 0.50 · 0.00 s",
    ]
    show(answer, trace=True)
    assert "dropped rivers: its corpus says otherwise\n" in capsys.readouterr().out


def test_a_warning_is_in_colour_unless_the_user_wants_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    gate = Decision("always", 0.0, True)
    answer = Answer("q", "It is blue.", "top-down", gate, citations=(Citation("It is blue."),))
    show(answer)
    assert "\x1b[1;33mwarning:" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    show(answer)
    assert "\x1b[1mwarning:" in capsys.readouterr().out


def test_of_a_long_passage_that_changed_the_part_that_differs_is_shown(kcard: Kcard, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    before = "The ferry leaves Port Ansel at eight and calls at every village on its way to the lighthouse of the cape."
    notes.write_text(f"{before} It sinks no more.\nThe mill grinds.\n", encoding="utf-8")
    train = ("train", notes, "--kind", "retrieval", "--name", "ferry")
    assert kcard(*train).code == 0
    notes.write_text(f"{before} It sails no more.\nThe mill grinds.\n", encoding="utf-8")
    done = kcard("sync", notes, "--card", "ferry", "--dry-run")
    old, new = [line for line in done.out.splitlines() if "no more" in line]
    assert old.startswith("~ notes.txt:1  …")
    assert "sinks" in old
    assert new.startswith("  notes.txt:1  …")
    assert "sails" in new
    assert max(len(old), len(new)) < 115
