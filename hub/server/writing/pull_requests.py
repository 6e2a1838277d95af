"""Pull requests, which this hub does not have. To overlook that one was asked for would be to write to the branch."""

from typing import Annotated, TypeAlias

from fastapi import Depends

from kcard.hub.refusals import Unsupported

__all__ = ["NoPullRequest"]

NO = frozenset(["", "0", "false"])


def _no_pull_request(create_pr: str = "") -> None:
    if create_pr.lower() not in NO:
        raise Unsupported("this hub has no pull requests: upload to a branch of its own with revision=…")


# Refuses a request that asks for a pull request.
NoPullRequest: TypeAlias = Annotated[None, Depends(_no_pull_request)]
