"""The OpenAPI description. Bodies are parsed by `json_body` and `openai.fields`, so their schemas are added by hand."""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

_REF = "#/components/schemas/{model}"


def json_body(*models: type[BaseModel]) -> dict[str, Any]:
    """`openapi_extra` of a route that takes a JSON body of one of these models."""
    refs = [{"$ref": _REF.format(model=model.__name__)} for model in models]
    schema = refs[0] if len(refs) == 1 else {"anyOf": refs}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def describe(app: FastAPI, version: str, models: Sequence[type[BaseModel]]) -> None:
    """Make `app.openapi()` include the schemas of `models`."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title="Octavo", version=version, routes=app.routes)
            _, definitions = models_json_schema(
                [(model, "validation") for model in models], ref_template=_REF
            )
            components = schema.setdefault("components", {}).setdefault("schemas", {})
            components.update(definitions["$defs"])
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
