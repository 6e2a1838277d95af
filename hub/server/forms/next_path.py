"""Where a browser goes on after the login: only to paths of this hub."""

import re

__all__ = ["next_path"]

HOME = "/"
# One slash, then no second one and no backslash, which browsers take for one; nothing that they drop or decode.
PATH = re.compile(r"/(?![/\\])[A-Za-z0-9._~!$&'()*+,;=:@%/?-]{0,1000}")


def next_path(text: str) -> str:
    """The path if it is one of this hub, otherwise the home page."""
    return text if PATH.fullmatch(text) else HOME
