"""GET /v1/models"""

import time
from typing import Any

from fastapi import APIRouter, Depends, Request

from kcard.serve.asking import key_holder
from kcard.serve.errors import NoSuchModel
from kcard.serve.service import Service

__all__ = ["router"]

router = APIRouter(dependencies=[Depends(key_holder)])
STARTED = int(time.time())


@router.get("/v1/models")
async def models(request: Request) -> dict[str, Any]:
    """The LLM, the LLM with each mode, and the LLM with each card."""
    service: Service = request.app.state.service
    return {"object": "list", "data": [_model(name) for name in await service.models()]}


@router.get("/v1/models/{name:path}")
async def model(request: Request, name: str) -> dict[str, Any]:
    service: Service = request.app.state.service
    if name not in await service.models():
        raise NoSuchModel(f"the model {name!r} does not exist: GET /v1/models lists those that do", "model")
    return _model(name)


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": STARTED, "owned_by": "kcard"}
