"""Connects to a hub with huggingface_hub, within limits, and turns its errors into one-line messages."""

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kcard.errors import HubError, KcardError, UnknownCard, UsageError, one_line
from kcard.hub.client.guard import LARGEST_ANSWERS, Guard
from kcard.hub.client.hooks import guarded
from kcard.hub.client.url import is_hugging_face
from kcard.terminal import printable

if TYPE_CHECKING:
    from huggingface_hub import HfApi

__all__ = ["connect", "status"]

# What huggingface_hub raises for JSON of another shape.
MALFORMED = (KeyError, TypeError, AttributeError)
LOGIN = "`kcard login --hub {url}`"


@contextmanager
def connect(
    url: str, token: str | None, *, progress: bool = False, largest: int = LARGEST_ANSWERS
) -> "Iterator[HfApi]":
    """The client for a hub. Errors inside the block become a HubError with one line.

    progress  whether huggingface_hub shows progress bars on stderr
    largest   most bytes of all answers within the block; more raise HubError

    Its settings for Xet, progress bars and warnings are global, and are restored at the end of the block. Uploads to
    other hubs than the Hugging Face Hub use LFS: hubs of this project do not speak Xet.
    """
    from huggingface_hub import HfApi, constants, utils
    from huggingface_hub.utils.logging import get_verbosity, set_verbosity

    bars: Any = utils  # its functions for progress bars are not exported for type checkers
    hidden = bars.are_progress_bars_disabled()
    xet, verbosity = constants.HF_HUB_DISABLE_XET, get_verbosity()
    constants.HF_HUB_DISABLE_XET = xet or not is_hugging_face(url)
    set_verbosity(logging.ERROR)
    if not progress and not hidden:
        bars.disable_progress_bars()
    try:
        with guarded(Guard(url, largest)) as marked:
            # False: without a token for this hub, the client must not send the user's Hugging Face token.
            yield HfApi(endpoint=url, token=token or False, library_name="kcard", headers=marked)
    except _failures() as error:
        raise _explained(url, token, error) from error
    except MALFORMED as error:
        raise HubError(f"{url} sent an unexpected answer ({one_line(error)}): is it a hub?") from error
    finally:
        constants.HF_HUB_DISABLE_XET = xet
        set_verbosity(verbosity)
        if not progress and not hidden:
            bars.enable_progress_bars()


def _failures() -> tuple[type[Exception], ...]:
    """The exceptions that the client raises."""
    from huggingface_hub.errors import HfHubHTTPError

    # The bases include the errors of its HTTP library, which depends on the version.
    return (*HfHubHTTPError.__bases__, RuntimeError, ValueError)


def status(error: BaseException) -> int | None:
    """The HTTP status of a client's error; None without a response."""
    from huggingface_hub.errors import HfHubHTTPError

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, HfHubHTTPError):
            return int(cause.response.status_code)
        cause = cause.__cause__ or cause.__context__
    return None


def _explained(url: str, token: str | None, error: Exception) -> KcardError:
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    cause = _root(error)
    if isinstance(cause, OfflineModeIsEnabled):
        return HubError(f"can't connect to {url}: HF_HUB_OFFLINE is set; unset it")
    if isinstance(cause, HFValidationError):
        return UsageError(f"{one_line(cause)}: use namespace/name")
    code, said = status(error), _said(cause)
    login = LOGIN.format(url=url)
    if isinstance(cause, GatedRepoError):
        return HubError(f"{url}: access to these files must be requested: {said}")
    if isinstance(cause, RevisionNotFoundError):
        return UnknownCard(f"{url}: no such version, branch or commit: {said}")
    if code == 401:
        if token is None:
            return HubError(f"{url} requires a token: {login}")
        return HubError(f"{url} rejected your token ({said}): {login} with another one")
    if isinstance(cause, RepositoryNotFoundError):
        return UnknownCard(
            f"{url}: repository not found, or private and not readable with your token: {said}"
        )
    if code is not None:
        return HubError(f"{url} {'failed' if code >= 500 else 'refused'} ({code}): {said}")
    if isinstance(cause, OSError) and cause.filename is not None:
        return HubError(f"{cause.filename}: {cause.strerror or cause}")
    if isinstance(cause, OSError) and cause.errno == errno.ENOSPC:
        return HubError(f"the disk is full: free some space and try again ({one_line(cause)})")
    if isinstance(cause, ValueError | RuntimeError) and not isinstance(cause, OSError):
        return HubError(f"{url}: {one_line(cause)}")
    return HubError(
        f"{url} does not answer ({one_line(cause)}): check that the hub is running, and try again"
    )


def _root(error: BaseException) -> BaseException:
    """The wrapped error: the server's response, or why there was none."""
    from huggingface_hub.errors import HfHubHTTPError

    wrapped = error.__cause__
    if isinstance(error, HfHubHTTPError) or wrapped is None:
        return error
    return _root(wrapped)


def _said(error: BaseException) -> str:
    """The server's message, or the client's."""
    answer = getattr(error, "response", None)
    said = getattr(error, "server_message", None) or (answer and answer.headers.get("X-Error-Message"))
    return printable(" ".join(said.split())[:300]) if said else one_line(error)
