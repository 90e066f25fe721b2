"""Calls over gRPC that list a daemon's models, load them and unload them."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.json_format import ParseDict

from migrator.serving.grpc.application import ApplicationClient, abort


async def index(application: ApplicationClient, response: Any, _request: Any, context: Any) -> Any:
    """All models with their state, as a message of the class `response`."""
    content = await application.json("POST", "/v2/repository/index", context)
    return ParseDict({"models": content}, response())


async def change(
    application: ApplicationClient, verb: str, response: Any, request: Any, context: Any
) -> Any:
    """Load or unload a model."""
    texts = {
        key: parameter.string_param
        for key, parameter in request.parameters.items()
        if parameter.WhichOneof("choice") == "string_param"
    }
    path = f"/v2/repository/models/{request.model_name}/{verb}"
    body = json.dumps({"parameters": texts}).encode()
    status, _, answer = await application.ask("POST", path, context, parts=[body])
    if status != 200:
        await abort(context, status, answer)
    return response()
