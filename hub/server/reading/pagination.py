"""The Link header that points to the next page."""

from urllib.parse import quote, urlencode

from fastapi import Request

from kcard.hub.server.dependencies import base_url
from kcard.hub.server.options import ServerOptions

__all__ = ["next_page"]


def next_page(request: Request, options: ServerOptions, path: str, **changed: str | int) -> dict[str, str]:
    """The Link header with the absolute URL of the next page.

    `path` is unquoted, or needs no quoting; `changed` replaces parameters of the request's query.
    """
    kept = [(key, value) for key, value in request.query_params.multi_items() if key not in changed]
    query = urlencode([*kept, *changed.items()])
    return {"Link": f'<{base_url(request, options)}{quote(path, safe="/%")}?{query}>; rel="next"'}
