"""The counts of `make density`."""

from pathlib import Path

from tests.project.density import Density

CODE = """
LONGEST = 3
MAX_LINES: int = 4
HEADING = "a"
even = [n for n in range(LONGEST) if n % 2 == 0]
first = even[0] if even else None
if (last := even[-1]) is not None:
    print(last)
"""


def test_a_file_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_text(CODE, encoding="utf-8")
    density = Density()
    density.add_file(path)
    density.add_file(path)
    assert density == Density(2, 16, comprehensions=2, conditionals=2, walruses=2, vague_constants=2)
