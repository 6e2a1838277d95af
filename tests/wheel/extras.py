"""Installs kcard alone, and with each of its extras, and walks all of its commands and options in each installation.

python tests/wheel/extras.py [--brief] [--folder FOLDER] [EXTRA ...]

Fails where a command breaks for want of a package, instead of naming the extra that brings it: kcard alone may name
extras, with an extra nothing may name that one. The extras' environments see the packages of the first one.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WALK = Path(__file__).with_name("walk.py")
FOR_DEVELOPERS = ("dev", "dev-all", "docs")


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [extra for extra in project["optional-dependencies"] if extra not in FOR_DEVELOPERS]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("extras", nargs="*", choices=[*extras, []], help="default: all")
    parser.add_argument("--brief", action="store_true", help="walk commands without their options")
    parser.add_argument("--folder", type=Path, help="keep the environments there; what is there is used")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kcard-extras-") as scratch:
        folder = args.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        brief = ["--brief"] if args.brief else []
        failed = walk_base(folder, brief)
        for extra in args.extras or extras:
            failed += walk_extra(folder, extra, brief)
    if failed:
        sys.exit(f"{failed} commands failed")


def walk_base(folder: Path, options: Sequence[str]) -> int:
    """Install kcard alone and walk it; return how many commands failed."""
    started = time.monotonic()
    base, work = folder / "base", folder / "work"
    if not base.is_dir():
        subprocess.run([sys.executable, "-m", "venv", str(base)], check=True)
        torch = next(
            line for line in (ROOT / "constraints.txt").read_text().split() if line.startswith("torch==")
        )
        install(base, base, torch)
        install(base, base, "-c", str(ROOT / "constraints.txt"), str(ROOT))
    installed = time.monotonic() - started
    work.mkdir(exist_ok=True)
    command = [*options, *(["--prepare"] if not any(work.iterdir()) else [])]
    return report("kcard", installed, walk(base, folder, "base", command), "")


def walk_extra(folder: Path, extra: str, options: Sequence[str]) -> int:
    """Install an extra over the base and walk it; return how many commands failed."""
    started = time.monotonic()
    base, place = folder / "base", folder / extra
    if not place.is_dir():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
        (packages,) = base.glob("lib/python*/site-packages")
        (own,) = place.glob("lib/python*/site-packages")
        (own / "base.pth").write_text(f"{packages}\n", encoding="utf-8")
        install(base, place, "-c", str(ROOT / "constraints.txt"), f"kcard[{extra}]")
    installed = time.monotonic() - started
    command = [*options, "--extra", extra, "--base", str(folder / "base.json")]
    return report(f"kcard[{extra}]", installed, walk(place, folder, extra, command), extra)


def install(base: Path, place: Path, *what: str) -> None:
    """Install packages into an environment with the pip of the base."""
    pip = [str(base / "bin" / "python"), "-m", "pip", "--python", str(place / "bin" / "python")]
    options = ["--quiet", "--disable-pip-version-check", "--no-compile"]
    subprocess.run([*pip, "install", *options, *what], check=True)


def walk(place: Path, folder: Path, name: str, options: Sequence[str]) -> list[dict[str, Any]]:
    """Walk the commands of an environment; return the results."""
    results = folder / f"{name}.json"
    command = [place / "bin" / "python", WALK, "--folder", folder / "work", "--json", results, *options]
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("KCARD_", "PYTHON"))
    }
    subprocess.run([*map(str, command)], check=True, env=environment | {"PYTHONDONTWRITEBYTECODE": "1"})
    return list(json.loads(results.read_text(encoding="utf-8")))


def report(name: str, installed: float, results: Sequence[dict[str, Any]], extra: str) -> int:
    """Print what was walked and what failed; return how many failed."""
    failed = 0
    for result in results:
        problem = result["problem"]
        if extra and f"kcard[{extra}]" in "".join(result["printed"].split()):
            problem = f"asks for {extra}, which is installed"
        if problem:
            failed += 1
            where = "on a terminal" if result["on_terminal"] else "off it"
            words = " ".join(result["case"][2])
            sys.stdout.write(f"kcard {words} ({where}): {problem}\n  {result['printed'].strip()[-400:]}\n")
    walked = sum(result["seconds"] for result in results)
    options = len({(command, option) for (command, option, _) in (result["case"] for result in results)})
    sys.stdout.write(
        f"{name}: {len(results)} commands, {options} options, {failed} failed; "
        f"installed in {installed:.0f} s, walked in {walked:.0f} s of two processes\n"
    )
    sys.stdout.flush()
    return failed


if __name__ == "__main__":
    main()
