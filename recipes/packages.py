"""Fetch and unpack packages with manuals from package registries, or the help of commands, and read them as kcard reads
documents."""

import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kcard.errors import CorpusError
from kcard.training.passages import passages
from kcard.training.readers.files import Document, format_of, plain_file
from kcard.training.readers.process import read_blocks
from kcard.types import Source


@dataclass(frozen=True)
class Manual:
    """`registry`: debian or npm, or help for what a command prints; `package`: its name, or the command; `files`:
    patterns, relative to the unpacked package; `held`: kept out of training."""

    name: str
    registry: str
    package: str
    version: str
    files: tuple[str, ...]
    held: bool = False

    def listed(self, packages: Path) -> list[Path]:
        """Its files, where the package is unpacked in a folder of its name. SystemExit where there are none."""
        root = packages / self.package
        files = sorted({file for pattern in self.files for file in root.glob(pattern) if file.is_file()})
        if not files:
            raise SystemExit(f"{root} holds none of {', '.join(self.files)}: fetch the package (--fetch)")
        return files


def manuals(path: Path) -> dict[str, Manual]:
    """The manuals that a TOML file lists, by name."""
    listed: Mapping[str, dict[str, object]] = tomllib.loads(path.read_text(encoding="utf-8"))
    return {name: Manual(name, **{**row, "files": tuple(row["files"])}) for name, row in listed.items()}  # type: ignore[arg-type]


def fetch(manual: Manual, packages: Path) -> None:
    """Download and unpack its package into the folder, unless it is there."""
    target = packages / manual.package
    if target.exists():
        return
    packages.mkdir(parents=True, exist_ok=True)
    if manual.registry == "help":
        command = [sys.executable if part == "python" else part for part in manual.package.split()]
        printed = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        ).stdout
        target.mkdir()
        (target / f"{manual.name}.txt").write_bytes(printed)
        return
    with tempfile.TemporaryDirectory() as scratch:
        if manual.registry == "debian":
            _run(["apt-get", "download", f"{manual.package}={manual.version}"], scratch)
            [package] = Path(scratch).glob("*.deb")
            _run(["dpkg-deb", "-x", str(package), str(target)], scratch)
        else:
            _run(["npm", "pack", "--silent", f"{manual.package}@{manual.version}"], scratch)
            [package] = Path(scratch).glob("*.tgz")
            shutil.unpack_archive(package, target)


def _run(command: Sequence[str], folder: str) -> None:
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def read(manual: Manual, packages: Path) -> Iterator[Source]:
    """The passages of its files; what can't be read is left out."""
    root = packages / manual.package
    for file in manual.listed(packages):
        if kind := format_of(file):
            name = file.relative_to(root).as_posix()
            try:
                with plain_file(file) as plain:
                    yield from passages(read_blocks(Document(plain, name), kind), name)
            except CorpusError as error:
                print(f"{name} is left out: {error}")
