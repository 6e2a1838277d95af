"""From an empty home to a card on the page of a hub: the seconds of each step that a new user takes.

    python -m benchmarks.first_use [--corpus FOLDER] [--runs 3] [--json]

Each step is a `kcard` command in a process of its own, as typed: serve a new hub, train an index of the corpus, publish
it to the hub with the token that the server printed. The last step ends when the page at / shows the card, polled as a
browser would load it. The corpus is demo/corpora/moons.

Beside the seconds by the clock: those of the processors, of all processes of a step together. Where others use the
machine they say what the step itself takes.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.serving import serving

__all__ = ["Step", "measured"]

CORPUS = Path(__file__).resolve().parents[1] / "demo" / "corpora" / "moons"
SECONDS = 60.0


@dataclass(frozen=True)
class Step:
    """`seconds` by the clock, and of the processors."""

    seconds: float
    processor: float


def measured(corpus: Path) -> dict[str, Step]:
    """What each step takes."""
    name = corpus.name
    with tempfile.TemporaryDirectory() as scratch:
        clock = _Clock()
        with serving(Path(scratch) / "hub") as server:
            clock.lap("serve", sum(map(_processor, (server.process.pid, *server.workers()))))
            user = {"KCARD_HOME": str(Path(scratch) / "user"), "KCARD_HUB_URL": server.url}
            _kcard(user, "train", "--corpus", str(corpus), "--kind", "retrieval")
            clock.lap("train")
            _kcard(user, "login", given=server.admin)
            clock.lap("login")
            _kcard(user, "publish", name)
            clock.lap("publish")
            _wait_for(server.url, f"admin/{name}")
            clock.lap("page")
    return clock.steps


class _Clock:
    """The steps so far. `running`: processor seconds of a process that goes on."""

    def __init__(self) -> None:
        self.steps: dict[str, Step] = {}
        self._last, self._used = time.monotonic(), _ended()

    def lap(self, name: str, running: float = 0.0) -> None:
        now, used = time.monotonic(), _ended()
        self.steps[name] = Step(now - self._last, used - self._used + running)
        self._last, self._used = now, used


def _ended() -> float:
    """Processor seconds of the processes that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _processor(process: int) -> float:
    """Processor seconds of a process that runs."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _kcard(settings: Mapping[str, str], *arguments: str, given: str = "") -> None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("KCARD_", "HF_"))}
    done = subprocess.run(
        [sys.executable, "-m", "kcard", *arguments],
        input=f"{given}\n",
        env={**kept, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"kcard {arguments[0]}: {done.stderr}")


def _wait_for(url: str, card: str) -> None:
    """Load the page until it shows the card."""
    deadline = time.monotonic() + SECONDS
    while True:
        with urllib.request.urlopen(f"{url}/", timeout=10) as answer:
            if card in answer.read().decode():
                return
        if time.monotonic() > deadline:
            raise RuntimeError(f"{url} does not show {card} after {SECONDS:.0f} s")
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    runs = [measured(options.corpus) for _ in range(options.runs)]
    medians = {
        step: {
            what: round(statistics.median(getattr(run[step], what) for run in runs), 2)
            for what in ("seconds", "processor")
        }
        for step in runs[0]
    }
    medians["all"] = {
        what: round(sum(step[what] for step in medians.values()), 2) for what in ("seconds", "processor")
    }
    if options.json:
        print(json.dumps({"runs": options.runs, **medians}))
        return
    for step, taken in medians.items():
        print(f"{step:<8} {taken['seconds']:6.2f} s   processor {taken['processor']:6.2f} s")


if __name__ == "__main__":
    main()
