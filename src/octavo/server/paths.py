"""What the path of a request says before any route sees it: where the application begins, and whose API it asks for."""

from collections.abc import Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.server.http_errors import ErrorShape, use_error_shape


class RootPath:
    """ASGI middleware for an application that a proxy shows below `prefix`, whether the proxy takes that off or not."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path: str = scope["path"]
            if not (path == self._prefix or path.startswith(f"{self._prefix}/")):
                scope["path"] = self._prefix + path
            scope["root_path"] = self._prefix
        await self._app(scope, receive, send)


class ErrorShapes:
    """ASGI middleware that lets errors have the shape of the API that a request asks for, those of a missing key too."""

    def __init__(self, app: ASGIApp, shapes: Mapping[str, ErrorShape]) -> None:
        """`shapes`: by a path, which may go on."""
        self._app = app
        self._shapes = shapes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = f"{route_path(scope)}/"
            for begin, shape in self._shapes.items():
                if path.startswith(f"{begin}/"):
                    use_error_shape(scope, shape)
        await self._app(scope, receive, send)


def route_path(scope: Scope) -> str:
    """The path as the routes know it."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))
