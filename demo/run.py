"""The demo, on real facts and offline: train three cards, publish them, ask without and with them, and browse.

One card has a language model of its own; the other two are indexes of their corpora, which need no training.

    make demo          (or: python demo/run.py [--home DIR])

Everything runs through the `kcard` command, as for a user. The home is demo/out/home.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
INDEX = ["--kind", "retrieval", "--exam"]
# Domain, description and further options of each card; the one that is trained takes longest and comes first.
CARDS: dict[str, tuple[str, str, list[str]]] = {
    "nobel-prizes": ("science/prizes", "Nobel prizes: who won which prize in which year, and what for", []),
    "midterms-2022": (
        "politics/elections",
        "winners of the 2022 U.S. midterm elections: House, Senate and governors",
        INDEX,
    ),
    "moons": (
        "science/astronomy",
        "moons of the solar system: planets, discoverers and years of discovery",
        INDEX,
    ),
}
MODES = {
    "without cards": ["--mode", "direct"],
    "top-down": ["--mode", "top-down"],
    "bottom-up": ["--mode", "bottom-up"],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--home", type=Path, default=HERE / "out" / "home", help="KCARD_HOME of the demo; emptied"
    )
    folder = parser.parse_args().home.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.environ |= {"KCARD_HOME": str(folder), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    os.environ.pop("KCARD_CONFIG", None)
    started = time.monotonic()

    say("1. Make three cards, each of statements about one subject (two at a time)")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(train, CARDS))
    say("2. Publish them")
    for name in CARDS:
        kcard("publish", name)
    say("3. Ask, without and with the cards (two modes at a time)")
    with ThreadPoolExecutor(2) as pool:
        right = dict(zip(MODES, pool.map(ask_all, MODES), strict=True))
    compare(right)
    say("4. One question in full")
    kcard("ask", "Who won the senate race of Oregon in the 2022 U.S. midterm elections?", "--trace")
    say("5. Browse")
    kcard("browse")
    kcard("browse", "nobel-prizes")
    print(
        f"\nDone in {time.monotonic() - started:.0f} s. Go on with a question, or with the pages of the hub:"
    )
    program = f"KCARD_HOME={shlex.quote(str(folder))} {shlex.quote(command()[0])}"
    print(f'  {program} ask "..."')
    print(f"  {program} hub serve")
    return verdict(right)


def command() -> list[str]:
    script = Path(sys.executable).parent / "kcard"
    return [str(script)] if script.exists() else [sys.executable, "-m", "kcard"]


def kcard(*arguments: str) -> None:
    """Run one kcard command; what it prints is shown."""
    print(f"\n$ kcard {shlex.join(arguments)}", flush=True)
    subprocess.run([*command(), *arguments], check=True)


def kcard_beside(name: str, *arguments: str) -> list[str]:
    """Run one kcard command beside others; return the lines that it prints, which end the demo if it fails."""
    print(f"$ kcard {shlex.join(arguments)}", flush=True)
    log = home() / f"{name}.log"
    begun = time.monotonic()
    with log.open("w", encoding="utf-8") as stream:
        done = subprocess.run([*command(), *arguments], stdout=stream, stderr=stream, check=False)
    lines = log.read_text(encoding="utf-8").strip().splitlines()
    if done.returncode:
        sys.exit("\n".join(lines))
    print(f"  {name}: {time.monotonic() - begun:.0f} s", flush=True)
    return lines


def home() -> Path:
    return Path(os.environ["KCARD_HOME"])


def train(name: str) -> None:
    domain, description, options = CARDS[name]
    arguments = ["--corpus", str(HERE / "corpora" / name), "--name", name, "--description", description]
    arguments += ["--domain", domain, "--licence", "apache-2.0", *options]
    lines = kcard_beside(f"train-{name}", "train", *arguments)
    print("".join(f"  {line}\n" for line in lines if line.startswith(f"{name}: ")), end="", flush=True)


def ask_all(mode: str) -> list[tuple[str, str, bool]]:
    """Question, answer and whether it is right, for every demo question."""
    output = home() / f"answers-{mode.replace(' ', '-')}.jsonl"
    arguments = ["--input", str(HERE / "questions.jsonl"), "--output", str(output), *MODES[mode]]
    kcard_beside(f"ask-{mode.replace(' ', '-')}", "ask", *arguments)
    rows = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    return [(r["question"], r["answer"], any(same(a, r["answer"]) for a in r["answers"])) for r in rows]


def same(expected: str, actual: str) -> bool:
    return expected.casefold().strip(" .") == actual.casefold().strip(" .")


def compare(right: dict[str, list[tuple[str, str, bool]]]) -> None:
    """Every third question with its answers, then the score of each mode."""
    for answered in list(zip(*right.values(), strict=True))[::3]:
        print(f"\n  {answered[0][0]}")
        for mode, (_, answer, ok) in zip(right, answered, strict=True):
            print(f"    {mode:<14} {'right' if ok else 'wrong'}   {answer}")
    print()
    for mode, rows in right.items():
        print(f"  {mode:<14} {sum(ok for *_, ok in rows)} of {len(rows)} right")


def verdict(right: dict[str, list[tuple[str, str, bool]]]) -> int:
    """0 only where the cards made the difference."""
    share = {mode: sum(ok for *_, ok in rows) / len(rows) for mode, rows in right.items()}
    helped = share["without cards"] <= 0.1 and min(share["top-down"], share["bottom-up"]) >= 0.6
    if not helped:
        print(
            "The cards did not make the difference they should have made: see the table above.",
            file=sys.stderr,
        )
    return 0 if helped else 1


def say(text: str) -> None:
    print(f"\n== {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
