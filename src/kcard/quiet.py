"""Loading models without a word on stderr: no progress bar for what takes a moment, no load report."""

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quiet_loading"]


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Silence transformers' loading messages below errors; what the user had set is restored after."""
    from transformers.utils import logging

    shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()
