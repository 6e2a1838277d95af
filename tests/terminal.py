"""kcard on a terminal of its own, and the lines that the terminal shows in the end."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

CONTROL = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b[=>]|([\r\n\x07\b])")
BAR = re.compile("[━╸╺]|[0-9]+%\\|")  # rich's, or tqdm's


class Terminal:
    """kcard on a terminal of its own.

    `screen`: what it printed since the last match of `wait_for`; `transcript`: all of it, with its control codes
    """

    def __init__(
        self, home: Path, *arguments: str, columns: int = 80, term: str = "dumb", cwd: Path | None = None
    ) -> None:
        self._master, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        env = os.environ | {"KCARD_HOME": str(home), "TERM": term, "COLUMNS": str(columns)}
        self.process = subprocess.Popen(
            [sys.executable, *arguments]
            if arguments[0] == "-c"
            else [sys.executable, "-m", "kcard", *arguments],
            env=env,
            cwd=cwd,
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
            preexec_fn=_control,
        )
        os.close(other)
        self.screen = self.transcript = ""

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    def send(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, pattern: str, seconds: float = 60) -> str:
        """Wait until the pattern is printed; return what was printed before it."""
        deadline = time.monotonic() + seconds
        while (match := re.search(pattern, self.screen)) is None:
            assert time.monotonic() < deadline, self.screen
            assert self._read(0.2), f"kcard ended without {pattern!r}:\n{self.screen}"
        before, self.screen = self.screen[: match.start()], self.screen[match.end() :]
        return before

    def finish(self, seconds: float = 60) -> int:
        """Read until the process ends; return its exit code."""
        deadline = time.monotonic() + seconds
        while self._read(0.2):
            assert time.monotonic() < deadline, self.screen
        return self.process.wait(10)

    def lines(self) -> list[str]:
        """Return the lines that are left on the terminal; none of them may have a bar and other text."""
        shown = render(self.transcript)
        assert not [line for line in shown if BAR.search(line)], shown
        return shown

    def _read(self, seconds: float) -> bool:
        """Read what is there, waiting for it; False at the end."""
        if not select.select([self._master], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._master, 4096)
        except OSError:  # the other side is closed
            return False
        text = data.decode(errors="replace")
        self.screen += text
        self.transcript += text
        return bool(data)


def _control() -> None:
    """Make stdin the controlling terminal, so that Ctrl-C is a signal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def render(transcript: str) -> list[str]:
    """Return the lines that a terminal of any height shows after this output, with the control codes that rich, tqdm
    and readline write: cursor up, erase a line, erase to its end."""
    lines, row, column, at = [""], 0, 0, 0
    for control in [*CONTROL.finditer(transcript), None]:
        text = transcript[at : control.start() if control else None]
        lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + len(text) :]
        column += len(text)
        if control is None:
            break
        at = control.end()
        count, code, character = control.groups()
        if character == "\r":
            column = 0
        elif character == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif character == "\b":
            column -= 1
        elif code == "A":
            row = max(0, row - int(count or 1))
        elif code == "K":
            lines[row] = "" if count == "2" else lines[row][:column]
    return [line.rstrip() for line in lines]
