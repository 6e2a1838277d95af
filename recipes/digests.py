"""SHA256SUMS of shipped weights, for `kcard doctor` and `sha256sum -c`."""

from pathlib import Path

from kcard.manifest import file_digest


def write_digests(folder: Path) -> None:
    """Every file of the folder but its README."""
    names = sorted(p.name for p in folder.iterdir() if p.name not in {"README.md", "SHA256SUMS"})
    lines = [f"{file_digest(folder / name)}  {name}\n" for name in names]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="ascii")
