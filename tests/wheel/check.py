"""Builds the wheel and imports every kcard module from it, so that no part is ever missing from what users get.

python tests/wheel/check.py [FOLDER]      copies the wheel there once it has passed
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("hub", "cards", "selectors", "gates", "integrators", "llms", "training", "evaluation", "cli")
IMPORT_ALL = """
import importlib, sys
from pathlib import Path
root = Path(sys.argv[1])
sys.path.insert(0, str(root))
files = sorted((root / "kcard").rglob("*.py"))
for file in files:
    name = ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
    module = importlib.import_module(name)
    assert Path(module.__file__).is_relative_to(root), f"{name} was imported from {module.__file__}"
print(f"{len(files)} modules imported from the wheel")
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        build = [sys.executable, "-m", "build", "--wheel", "--outdir", scratch, str(ROOT)]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            inside = set(archive.namelist())
            archive.extractall(Path(scratch) / "unpacked")
        missing = sorted(expected() - inside)
        if missing:
            sys.exit(f"not in the wheel: {', '.join(missing)}")
        strays = sorted(n for n in inside if not n.startswith(("kcard/", "kcard-")))
        if strays:
            sys.exit(f"the wheel would install outside kcard/: {', '.join(strays)}")
        size = wheel.stat().st_size / 1e6
        subprocess.run(
            [sys.executable, "-I", "-c", IMPORT_ALL, str(Path(scratch) / "unpacked")], check=True, cwd=scratch
        )
        if sys.argv[1:]:
            Path(sys.argv[1]).mkdir(exist_ok=True)
            shutil.copy(wheel, sys.argv[1])
        sys.stdout.write(f"{wheel.name}: {len(inside)} files, {size:.1f} MB\n")


def expected() -> set[str]:
    """Every tracked file of the parts and of src/kcard, as it must stand in the wheel."""
    listed = subprocess.run(
        ["git", "ls-files", *PARTS, "src/kcard"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\n")
    files = {path for path in listed if path and not (ROOT / path).is_symlink()}
    return {"kcard/" + path.removeprefix("src/kcard/") for path in files}


if __name__ == "__main__":
    main()
