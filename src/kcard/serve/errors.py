"""Errors of the endpoint, in the shape that OpenAI's clients read."""

from typing import Any

__all__ = [
    "ApiError",
    "Busy",
    "Internal",
    "LLMFailed",
    "NoSuchModel",
    "TimedOut",
    "Unauthorized",
    "body",
]


class ApiError(Exception):
    """A request that is not answered.

    kind   OpenAI's type of the error, such as invalid_request_error
    param  the parameter that is wrong, such as messages[0].role; None where it is not one
    code   a short name for programs, such as model_not_found
    """

    status = 400
    kind = "invalid_request_error"
    code: str | None = None

    def __init__(self, message: str, param: str | None = None, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.param, self.retry_after = param, retry_after


class NoSuchModel(ApiError):
    status = 404
    code = "model_not_found"


class Unauthorized(ApiError):
    status = 401
    kind = "authentication_error"
    code = "invalid_api_key"


class Busy(ApiError):
    """Too many questions are waiting."""

    status = 503
    kind = "server_error"
    code = "overloaded"


class LLMFailed(ApiError):
    """The LLM behind the endpoint failed or can't be reached."""

    status = 502
    kind = "server_error"
    code = "llm_error"


class TimedOut(ApiError):
    """The question took longer than a question may take."""

    status = 504
    kind = "server_error"
    code = "timeout"


class Internal(ApiError):
    """A failure of the endpoint itself; its log says more."""

    status = 500
    kind = "server_error"
    code = "internal_error"


def body(error: ApiError) -> dict[str, Any]:
    """The error as JSON."""
    return {
        "error": {"message": str(error), "type": error.kind, "param": error.param, "code": error.code},
    }
