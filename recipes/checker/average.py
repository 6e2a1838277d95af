"""Average the weights of two runs of the checker, of which the second gained new abilities and lost old ones.

    python -m recipes.checker.average FIRST SECOND --share 0.65 --output FOLDER

Each weight is (1 - share) times FIRST's plus share times SECOND's, which continued FIRST (Wortsman et al., 2022).
"""

import argparse
import shutil
from pathlib import Path

from recipes.digests import write_digests

FILES = ("adapter_model.safetensors", "head.safetensors")
NOTE = """
The weights are {first:.2f} of the last but one run's and {second:.2f} of the last one's: recipes/checker/average.py.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--share", type=float, required=True, help="of the second, from 0 to 1")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    average(options.first, options.second, options.share, options.output)


def average(first: Path, second: Path, share: float, output: Path) -> None:
    """Write the mean of two folders' weights, with the second's record."""
    from safetensors.torch import load_file, save_file

    mixed = {}
    for name in FILES:
        one, two = load_file(first / name), load_file(second / name)
        mixed[name] = {
            key: value.float().lerp(two[key].float(), share).to(value.dtype) for key, value in one.items()
        }
    shutil.copytree(second, output, dirs_exist_ok=True)
    for name, weights in mixed.items():
        save_file({key: weight.contiguous() for key, weight in weights.items()}, output / name)
        (output / name).chmod(0o644)
    record = (output / "README.md").read_text(encoding="utf-8")
    before, heading, after = record.partition("\nTrained on\n")
    note = NOTE.format(first=1 - share, second=share)
    (output / "README.md").write_text(before + note + heading + after, encoding="utf-8")
    write_digests(output)


if __name__ == "__main__":
    main()
