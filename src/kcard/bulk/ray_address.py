"""Whether a Ray cluster listens at an address: Ray itself tries for two minutes and then ends the process."""

import socket

from kcard.errors import ClusterError

__all__ = ["check_reachable", "is_up"]

SECONDS = 5
# How a connection begins in HTTP/2, which gRPC and so Ray's heads speak (RFC 9113, section 3.4): a preface and an empty
# frame of settings; the server answers with its own.
SETTINGS = 4
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, SETTINGS, 0, 0, 0, 0, 0])


def check_reachable(address: str) -> None:
    """Raises ClusterError within seconds where no head of a Ray cluster can be at HOST:PORT."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        raise ClusterError(
            f"--ray {address}: expected HOST:PORT of the cluster's head on a machine of the cluster, auto or local"
        )
    try:
        speaks = _speaks_grpc(host, int(port))
    except (OSError, OverflowError) as error:
        raise ClusterError(
            f"--ray {address}: nothing can be reached there ({error}): start a cluster with `ray start --head`, or "
            "name its head"
        ) from None
    if not speaks:
        raise ClusterError(f"--ray {address}: what listens there is not the head of a Ray cluster")


def is_up(address: str) -> bool:
    """Whether the head of a cluster at HOST:PORT answers within seconds."""
    host, _, port = address.rpartition(":")
    try:
        return _speaks_grpc(host, int(port))
    except OSError:
        return False


def _speaks_grpc(host: str, port: int) -> bool:
    """Raises OSError where nothing can be reached."""
    with socket.create_connection((host, port), SECONDS) as connection:
        try:
            connection.sendall(HELLO)
            answer = connection.recv(9)
        except OSError:  # it hung up, or is silent
            return False
    return len(answer) == 9 and answer[3] == SETTINGS
