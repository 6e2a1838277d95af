"""What a namespace or a repository may be called."""

import re

from kcard.hub.refusals import Invalid

__all__ = ["RESERVED", "check_name", "check_namespace", "check_repository", "folded", "is_name"]

LONGEST = 96
PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
ENDINGS = (".git", ".ipynb")

# Words that begin the path of something else, or that would read as something else where a name is expected.
RESERVED = frozenset(
    {
        "api",
        "cas",
        "datasets",
        "docs",
        "healthz",
        "lfs",
        "local",
        "login",
        "metrics",
        "models",
        "new",
        "openapi.json",
        "organizations",
        "readyz",
        "settings",
        "spaces",
        "static",
        "xet",
    }
)


def folded(name: str) -> str:
    """What a name is compared by: names differ in more than case."""
    return name.lower()


def is_name(name: str) -> bool:
    """Whether something could have that name: whatever could not is not looked up."""
    return len(name) <= LONGEST and PART.fullmatch(name) is not None


def check_name(name: str) -> str:
    """The name, where a namespace or a repository may be called so; Invalid, which says why not."""
    if len(name) > LONGEST:
        raise Invalid(f"name {name[:40]!r}... has {len(name)} characters: at most {LONGEST} are allowed")
    if not PART.fullmatch(name):
        raise Invalid(
            f"name {name!r}: use letters, digits, '.', '_' and '-', with a letter or digit at both ends"
        )
    if "--" in name or ".." in name:
        raise Invalid(f"name {name!r} has '--' or '..', which no name may have")
    if folded(name).endswith(ENDINGS):
        raise Invalid(f"name {name!r} ends in {' or '.join(ENDINGS)}, which no name may do")
    return name


def check_namespace(name: str) -> str:
    """The name, where an account may be called so: as `check_name`, and not one that is reserved."""
    if folded(check_name(name)) in RESERVED:
        raise Invalid(f"name {name!r} is reserved: take another")
    return name


def check_repository(name: str) -> str:
    """namespace/name, where a repository may be called so; the namespace need not be there."""
    namespace, slash, own = name.partition("/")
    if not slash:
        raise Invalid(f"repository {name[:200]!r}: give namespace/name")
    check_namespace(namespace)
    check_name(own)
    return name
