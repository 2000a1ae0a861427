"""Errors that crossed from the engine process by name."""

from octavo import errors
from octavo.errors import OctavoError, QueueFullError, RequestFailedError, UserError

_ERROR_CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, OctavoError)
}


def error_named(
    error_type: str | None,
    message: str,
    parameter: str | None = None,
    retry_after_s: float | None = None,
) -> OctavoError:
    """The error that the engine process reported, as the class of `octavo.errors` that it named."""
    kind = _ERROR_CLASSES.get(error_type or "", RequestFailedError)
    if issubclass(kind, UserError):
        return kind(message, parameter=parameter)
    if issubclass(kind, QueueFullError) and retry_after_s is not None:
        return kind(message, retry_after_s=retry_after_s)
    return kind(message)
