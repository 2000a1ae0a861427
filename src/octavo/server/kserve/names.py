"""Models and versions in paths. There is one version of each model."""

from octavo.server.http_errors import HttpError
from octavo.server.kserve.signature import VERSION
from octavo.server.serving import ServedModel, Serving


def check_version(name: str, version: str | None) -> None:
    """Raise HttpError 404 for a version that is not there."""
    if version not in (None, VERSION):
        raise HttpError(
            404,
            f"Request for unknown model: '{name[:200]}' version {str(version)[:20]} is not found; there is {VERSION}",
        )


def served(serving: Serving, name: str, version: str | None = None) -> ServedModel:
    """The model of a path. Raises HttpError 404 or 503."""
    model = serving.model()
    if name not in model.names:
        raise HttpError(404, f"Request for unknown model: '{name[:200]}' is not found")
    check_version(name, version)
    return model
