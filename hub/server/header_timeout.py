"""HTTP/1.1 connections that limit the time and size of a request's headers.

The application only sees complete headers, so that it can't limit clients that send them slowly.
"""

from asyncio import BaseTransport, TimerHandle
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["HeaderTimeout"]

SECONDS = 20.0
LARGEST = 64 << 10  # bytes


class HeaderTimeout(HttpToolsProtocol):
    """Closes connections whose next headers are not complete in time, or too large.

    The time of a new connection begins at once, that of a connection in use with the first byte of the next request;
    until then uvicorn's keep-alive timeout applies.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._timer: TimerHandle | None = None
        self._received = 0  # bytes since the headers began
        self._size = 0  # of the parsed headers

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._start()

    def data_received(self, data: bytes) -> None:
        if self._timer is None and not self._is_busy():
            self._start()
        self._received += len(data)
        super().data_received(data)
        if self._timer is not None and self._received > LARGEST:
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._size = 0
        self._start()

    def on_url(self, url: bytes) -> None:
        self._count(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(name, value, b": \r\n")
        super().on_header(name, value)

    def _count(self, *parts: bytes) -> None:
        """Count what was parsed: the headers may come complete in one piece, with a body behind them."""
        self._size += sum(map(len, parts))
        if self._size > LARGEST:
            raise ValueError(f"headers of more than {LARGEST} bytes")  # which the parser turns into a 400

    def on_headers_complete(self) -> None:
        self._stop()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _start(self) -> None:
        self._stop()
        self._received = 0
        self._timer = self.loop.call_later(SECONDS, self._expired)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expired(self) -> None:
        if self._is_busy():  # a request before this one, during which nothing is read
            self._start()
        else:
            self.transport.close()

    def _is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete
