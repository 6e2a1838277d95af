"""Pages of an answer: where the next one is, as the Link header says it."""

from collections.abc import Sequence
from urllib.parse import quote, urlencode

__all__ = ["next_page"]


def next_page(base: str, path: str, query: Sequence[tuple[str, str]], **changed: str | int) -> dict[str, str]:
    """The Link header with the address of the next page: clients follow it as it stands, so it is absolute.

    `path` is not quoted, or holds nothing but what needs none; `changed` takes the place of what the query had.
    """
    kept = [(key, value) for key, value in query if key not in changed]
    asked = urlencode([*kept, *changed.items()])
    return {"Link": f'<{base}{quote(path, safe="/%")}?{asked}>; rel="next"'}
