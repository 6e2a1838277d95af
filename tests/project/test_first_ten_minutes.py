"""A newcomer's first ten minutes on a terminal of 80 columns: every screen is one to read, and Ctrl-C loses nothing."""

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.command import Kcard
from tests.terminal import BAR, Terminal, render

ROOT = Path(__file__).resolve().parents[2]
MOONS = ROOT / "demo" / "corpora" / "moons"
NOTES = """\
Triton, the largest moon of Neptune, was discovered by William Lassell in 1846.
Nereid, a moon of Neptune, was found by Gerard Kuiper in 1949.
Proteus, a moon of Neptune, was found on images of Voyager 2 in 1989.
Triton circles Neptune against the rotation of the planet.
Titan is the largest moon of Saturn, and Christiaan Huygens discovered it in 1655.
Mimas and Enceladus, two moons of Saturn, were discovered by William Herschel in 1789.
"""
DESCRIPTION = "moons of Neptune and Saturn, and who discovered them"


class Newcomer:
    """Types commands in a folder with notes, and reads what they leave on the terminal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "notes").mkdir()
        (folder / "notes" / "moons.txt").write_text(NOTES, encoding="utf-8")

    def start(self, command: str) -> Terminal:
        return Terminal(self.folder / "home", *shlex.split(command), term="xterm", cwd=self.folder)

    def read(self, terminal: Terminal, code: int = 0) -> list[str]:
        """Return the lines that a command left; they fit, none is a traceback or has a bar."""
        assert terminal.finish(300) == code, terminal.transcript
        lines = terminal.lines()
        assert not any("Traceback" in line or "a bug in kcard" in line for line in lines), lines
        return lines

    def run(self, command: str) -> list[str]:
        with self.start(command) as terminal:
            return self.read(terminal)

    def train(self, command: str, description: str) -> tuple[str, list[str]]:
        """Train, answer the question for a description; return the proposed one and the lines."""
        with self.start(command) as terminal:
            before = render(terminal.wait_for("Enter to use it, or another one", 300))
            terminal.send(f"{description}\r")
            return before[-2].removeprefix("description: "), self.read(terminal)


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield Newcomer(tmp_path_factory.mktemp("newcomer"))


def has_line(pattern: str, lines: list[str]) -> bool:
    return any(re.search(pattern, line) for line in lines)


@pytest.fixture
def command(newcomer: Newcomer, kcard: Kcard, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The command in the newcomer's folder where no terminal is needed: in this process."""
    monkeypatch.setenv("KCARD_HOME", str(newcomer.folder / "home"))
    monkeypatch.chdir(newcomer.folder)

    def output(*arguments: str) -> str:
        done = kcard(*arguments)
        assert done.code == 0, done.err
        return done.out

    return output


@pytest.mark.timeout(900)
def test_from_notes_to_an_answer(newcomer: Newcomer, command: Callable[..., str]) -> None:
    # Train: a description is proposed and asked for, and the end says what comes next.
    proposed, lines = newcomer.train("train --corpus notes --epochs 2", DESCRIPTION)
    assert proposed == "Notes from the folder notes: moons"
    assert has_line(r"^6 passages in notes$", lines)
    assert lines[-2] == 'next: `kcard ask "..." --cards notes`; `kcard publish notes` puts it in the hub'
    # Publish, and ask.
    assert re.match(r"notes@v1  \w{12}  ", command("publish", "notes"))
    lines = newcomer.run('ask "Who discovered Triton?"')
    assert "William Lassell" in lines
    assert has_line(r"<- notes \(\w+\) <- moons\.txt:1$", lines)
    assert has_line(r"^embedded reader · confidence 0\.\d\d · \d+\.\d\d s$", lines)
    # Talk.
    with newcomer.start("chat") as terminal:
        terminal.wait_for(r"1 card: notes\s+Ask a question, or type /help", 120)
        for typed, shown in {
            "/cards": re.escape(DESCRIPTION),
            "Who found Nereid?": "Gerard Kuiper",
            "/trace": r"kept\S* notes",
            "/mode bottom-up": "mode: bottom-up",
            "/mode sideways": "unknown mode 'sideways': choose one of",
            "Who discovered Titan?": "Christiaan Huygens",
        }.items():
            terminal.wait_for(r"\? ", 120)
            terminal.send(f"{typed}\r")
            terminal.wait_for(shown, 120)
        terminal.wait_for(r"confidence 0\.\d\d · .* s\b")
        terminal.wait_for(r"\? ")
        terminal.send("\x04")
        newcomer.read(terminal)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_cards_fit_the_terminal_and_training_again_proposes_the_description_that_was_typed(
    newcomer: Newcomer,
) -> None:
    newcomer.train("train --corpus notes --epochs 2", DESCRIPTION)
    newcomer.run("publish notes")
    lines = newcomer.run("browse")
    assert all(len(line) <= 80 for line in lines), lines
    assert has_line("recall", lines)
    proposed, lines = newcomer.train("train --corpus notes --kind retrieval", "")
    assert proposed == DESCRIPTION
    assert has_line(r"^the earlier card of this name is kept: .*/\.notes\.earlier$", lines)


@pytest.mark.timeout(900)
def test_a_training_that_is_stopped_leaves_a_card_to_go_on_with(
    newcomer: Newcomer, command: Callable[..., str]
) -> None:
    training = f"train --corpus {MOONS} --name moons --description moons --minutes 60"
    with newcomer.start(training) as terminal:
        terminal.wait_for(r"training .*[━╸].* [1-9]\d*/\d+", 300)
        terminal.send("\x03")
        lines = newcomer.read(terminal, code=130)
    assert BAR.search(terminal.transcript)
    (stopped,) = [place for place, line in enumerate(lines) if line.startswith("kcard: training interrupted")]
    message = "".join(lines[stopped:])
    assert "moons is an index (kind retrieval), usable now; stopped after " in message
    assert f"continue with: kcard {training} --resume" in message
    # The index answers at once.
    assert command("publish", "moons").startswith("moons@v1 ")
    lines = command("ask", "Who found the moon Miranda?", "--cards", "moons").splitlines()
    assert "Gerard Kuiper" in lines
