"""GET /healthz and /metrics; neither needs a key."""

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

__all__ = ["router"]

router = APIRouter()


@router.get("/healthz")
async def healthz() -> Response:
    return PlainTextResponse("ok\n")


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Counters for Prometheus."""
    content, kind = request.app.state.metrics.exposed()
    return Response(content, media_type=kind)
