"""Runs client.py with several versions of huggingface_hub against a hub, and prints a table of what worked.

    python tests/conformance/matrix.py [--output table.md] [--versions 0.36.2,2.4.0]

Each version gets a virtual environment of its own under .venv-matrix, with huggingface_hub and nothing else;
making them needs a package index, once. The hub is `kcard hub serve` in a new home, on this machine alone. Exit code 1
where a call failed.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLIENT = Path(__file__).with_name("client.py")
ENVIRONMENTS = ROOT / ".venv-matrix"
CONSTRAINTS = ROOT / "constraints.txt"
OLDER = ("0.36.2", "1.29.0")
SECONDS = 300  # in which a version must have made its calls


@dataclass(frozen=True)
class Hub:
    """A running hub: where it answers, and tokens of two users."""

    url: str
    tokens: tuple[str, str]


def main() -> int:
    """Make every call with every version; 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--versions", help="of huggingface_hub, with commas")
    parser.add_argument("--output", type=Path, help="a Markdown file for the table; default: standard output")
    given = parser.parse_args()
    versions = given.versions.split(",") if given.versions else [*OLDER, pinned("huggingface_hub")]
    pythons = {version: environment(version) for version in versions}
    results: dict[str, list[dict[str, object]]] = {}
    with running_hub() as hub:
        for version, python in pythons.items():
            told = results[version] = calls(python, hub)
            failed = [line for line in told if not line["ok"]]
            say(f"huggingface_hub {version}: {len(told)} calls, {len(failed)} failed")
            for line in failed:
                say(f"  {line['name']}: {line['error']}")
    text = table(results)
    if given.output is None:
        sys.stdout.write(text)
    else:
        given.output.write_text(text, encoding="utf-8")
    return int(any(not line["ok"] for told in results.values() for line in told))


def say(text: str) -> None:
    """Progress, on stderr."""
    sys.stderr.write(text + "\n")


def pinned(name: str) -> str:
    """The version of a package that constraints.txt names."""
    text = CONSTRAINTS.read_text(encoding="utf-8")
    found = re.search(rf"(?m)^{re.escape(name)}==(\S+)$", text)
    if found is None:
        raise SystemExit(f"{CONSTRAINTS} names no version of {name}")
    return found[1]


def environment(version: str) -> Path:
    """The Python of an environment with that huggingface_hub, which is made where it is not there."""
    folder = ENVIRONMENTS / version
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    wanted = [f"huggingface_hub=={version}"]
    done = folder / "installed.txt"
    if not done.is_file() or done.read_text(encoding="utf-8").split() != wanted:
        say(f"making an environment with {', '.join(wanted)}")
        ENVIRONMENTS.mkdir(exist_ok=True)
        (ENVIRONMENTS / ".gitignore").write_text("*\n", encoding="utf-8")
        venv.create(folder, clear=True, with_pip=True)
        pip = [str(python), "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
        subprocess.run(pip, check=True, stdout=sys.stderr)
        done.write_text("\n".join(wanted), encoding="utf-8")
    return python


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A hub in a new home with two users, served by two workers until the block ends."""
    kcard = str(Path(sys.executable).with_name("kcard"))
    with tempfile.TemporaryDirectory(prefix="kcard-matrix-") as folder:
        ours = {"KCARD_HOME": str(Path(folder) / "home"), "OMP_NUM_THREADS": "1"}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "KCARD_"))}
        log = Path(folder) / "log.txt"
        with log.open("w", encoding="utf-8") as stream:
            served = subprocess.Popen(
                [kcard, "hub", "serve", "--port", "0"],
                env=kept | ours,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
            )
        assert served.stdout is not None
        try:
            url = address(served.stdout)
            if url is None:
                raise SystemExit(f"the hub did not start:\n{log.read_text(encoding='utf-8')[-2000:]}")
            tokens = [
                subprocess.run(
                    [kcard, "hub", "user", "add", name],
                    env=kept | ours,
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout.strip()
                for name in ("ada", "bob")
            ]
            yield Hub(url, (tokens[0], tokens[1]))
        finally:
            served.terminate()
            served.wait(timeout=60)
            served.stdout.close()


def address(lines: Iterator[str]) -> str | None:
    """What the hub says it answers at; before that it prints the first administrator's token."""
    for line in lines:
        if line.startswith("serving on "):
            return line.split()[-1]
    return None


def calls(python: Path, hub: Hub) -> list[dict[str, object]]:
    """What client.py says of each call."""
    with tempfile.TemporaryDirectory(prefix="kcard-matrix-") as home:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "KCARD_"))}
        ours = {
            "HF_ENDPOINT": hub.url,
            "HF_TOKEN": hub.tokens[0],
            "OTHER_TOKEN": hub.tokens[1],
            "HF_HOME": home,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_UPDATE_CHECK": "1",
            "TMPDIR": home,
        }
        command = [str(python), "-I", str(CLIENT)]
        try:
            done = subprocess.run(
                command, env=kept | ours, capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired as late:
            told = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
            return [
                *read(told),
                {"name": "all calls in time", "ok": False, "error": f"{SECONDS} s have passed"},
            ]
        found = read(done.stdout)
        if done.returncode not in {0, 1} or not found:
            found.append({"name": "client.py", "ok": False, "error": done.stderr[-1000:]})
        return found


def read(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def table(results: Mapping[str, Sequence[Mapping[str, object]]]) -> str:
    """A row for each call, a column for each version."""
    names = list(dict.fromkeys(str(line["name"]) for told in results.values() for line in told))
    head = " | ".join(results)
    rows = [f"| call | {head} |", "|---" * (len(results) + 1) + "|"]
    for name in names:
        cells = (next((line for line in told if line["name"] == name), None) for told in results.values())
        rows.append(f"| {name} | {' | '.join(cell(line) for line in cells)} |")
    notes = {
        f"- {version}: {line['name']}: {line['skipped']}"
        for version, told in results.items()
        for line in told
        if "skipped" in line
    }
    return "\n".join([*rows, "", "–: not made", *sorted(notes), ""])


def cell(line: Mapping[str, object] | None) -> str:
    """ok, FAILED, or – where the call was not made."""
    if line is None or "skipped" in line:
        return "–"
    return "ok" if line["ok"] else "FAILED"


if __name__ == "__main__":
    sys.exit(main())
