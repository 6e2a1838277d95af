"""Which waiting questions a worker answers together."""

from collections import deque

__all__ = ["Waiting", "take"]

# Number and card of each waiting question, the oldest first.
Waiting = deque[tuple[int, int]]


def take(waiting: Waiting, most: int, mixed: bool = False) -> list[tuple[int, int]]:
    """Remove the next batch from what waits: the oldest question, and others up to `most` in all.

    mixed  questions of any card; else of the oldest one's card alone
    """
    card = waiting[0][1]
    batch: list[tuple[int, int]] = []
    passed: list[tuple[int, int]] = []
    while waiting and len(batch) < most:
        question = waiting.popleft()
        (batch if mixed or question[1] == card else passed).append(question)
    waiting.extendleft(reversed(passed))
    return batch
