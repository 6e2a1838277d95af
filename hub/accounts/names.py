"""Valid names of namespaces and repositories."""

import re

from kcard.hub.refusals import Invalid

__all__ = [
    "AMBIGUOUS",
    "OWN",
    "RESERVED",
    "TAKEN",
    "check_name",
    "check_namespace",
    "check_repository",
    "check_unambiguous",
    "folded",
    "is_name",
]

LONGEST = 96
PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
ENDINGS = (".git", ".ipynb")

# First segments of other paths, and words that would be ambiguous as a name.
RESERVED = {"api", "datasets", "docs", "healthz", "lfs", "local", "login", "metrics", "models", "new"}
RESERVED |= {"openapi.json", "organizations", "readyz", "settings", "spaces", "static"}
# Words that make the path of a repository with this name, or in this namespace, mean two things. They are refused for
# new ones only.
AMBIGUOUS = {"commit", "raw", "resolve", "revision", "tree"}
# The organisations that the hub creates for its own cards. No account may be created with their names.
OWN = ("library", "library-cards")
# First segments of paths where an account's page would be, and OWN. They are refused for new accounts only.
TAKEN = {"ask", "compare", "favicon.ico", "favicon.svg", "feed.atom", "leaderboard", "robots.txt", *OWN}


def folded(name: str) -> str:
    """The form in which names are compared: they differ in more than case."""
    return name.lower()


def is_name(name: str) -> bool:
    """Whether a name is well-formed, so that it is worth looking up."""
    return len(name) <= LONGEST and PART.fullmatch(name) is not None


def check_name(name: str) -> str:
    """The name, if it is valid for a namespace or a repository. Raises Invalid."""
    if len(name) > LONGEST:
        raise Invalid(f"name {name[:40]!r}... is too long: {len(name)} characters, the limit is {LONGEST}")
    if not PART.fullmatch(name):
        raise Invalid(
            f"invalid name {name!r}: use letters, digits, '.', '_' and '-', with a letter or digit at both ends"
        )
    if "--" in name or ".." in name:
        raise Invalid(f"invalid name {name!r}: '--' and '..' are not allowed")
    if folded(name).endswith(ENDINGS):
        raise Invalid(f"invalid name {name!r}: it must not end in {' or '.join(ENDINGS)}")
    return name


def check_namespace(name: str) -> str:
    """The name, if it is valid for an account: as `check_name`, and not reserved."""
    if folded(check_name(name)) in RESERVED:
        raise Invalid(f"name {name!r} is reserved: choose another")
    return name


def check_unambiguous(name: str, *, account: bool = False) -> None:
    """Raise Invalid for a new account or repository (without its namespace) whose name has a meaning in this hub."""
    if folded(name) in AMBIGUOUS or (account and folded(name) in TAKEN):
        raise Invalid(f"name {name!r} is reserved, since it has a meaning in this hub: choose another")


def check_repository(name: str) -> str:
    """namespace/name, if both parts are valid; the namespace need not exist."""
    namespace, slash, own = name.partition("/")
    if not slash:
        raise Invalid(f"invalid repository name {name[:200]!r}: use namespace/name")
    check_namespace(namespace)
    check_name(own)
    return name
