"""Numbers of rows, as links and hidden fields have them."""

__all__ = ["LARGEST", "row_number"]

LARGEST = 2**31 - 1  # of an integer column


def row_number(text: str, default: int = LARGEST) -> int:
    """The number, at most LARGEST; `default` for anything else."""
    return min(int(text), LARGEST) if text.isascii() and text.isdigit() and len(text) < 11 else default
