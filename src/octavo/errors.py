"""The error tree. A user's mistake names the parameter, the limit and the value that was given.

OctavoError
├── UserError (also a ValueError)      the caller can mend it; HTTP 400
│   ├── InvalidParameterError          a value outside its limits
│   ├── UnsupportedParameterError      known to the field, not honoured here
│   ├── ContextLengthError             prompt or completion beyond the model's context
│   ├── CapacityError                  would need more than the whole block pool
│   ├── PromptError                    empty prompt, token id out of the vocabulary
│   └── TemplateError                  the chat template refused the messages
├── ConfigError (also a ValueError)    settings that cannot work together
│   └── MemoryShortageError            they need more memory than there is
├── CheckpointError                    a model file that is missing, broken or not understood
│   └── UnknownArchitectureError
├── DownloadError                      a model could not be fetched
├── PlatformError                      this machine is not supported
├── QueueFullError                     more requests are waiting than the limit allows; HTTP 503
├── TierError                          a page could not be swapped, stored or had back; it is computed again
├── RequestFailedError                 this request failed inside the engine; others go on
└── EngineDeadError                    the engine process has ended; HTTP 503
"""


class OctavoError(Exception):
    """Root of everything that Octavo raises on purpose."""


class UserError(OctavoError, ValueError):
    """A mistake of the caller. `parameter` is the name used by the interface, `value` what was given."""

    def __init__(self, message: str, *, parameter: str | None = None, value: object = None) -> None:
        super().__init__(message)
        self.parameter = parameter
        self.value = value


class InvalidParameterError(UserError):
    """A known parameter has a value outside its limits."""


class UnsupportedParameterError(UserError):
    """A parameter that other systems know and that would change the answer, but is not honoured here."""


class ContextLengthError(UserError):
    """The prompt, or prompt and completion together, exceed the model's context."""


class CapacityError(UserError):
    """The request could never run, even alone: it needs more than the whole block pool."""


class PromptError(UserError):
    """A prompt that is empty or holds token ids that the model does not have."""


class TemplateError(UserError):
    """The chat template raised, or does not exist."""


class ConfigError(OctavoError, ValueError):
    """Settings that are wrong or cannot work together."""


class MemoryShortageError(ConfigError):
    """Settings that need more memory than the machine has. Says what does fit, if anything does."""


class CheckpointError(OctavoError):
    """A model file that is missing, truncated, malformed or not understood. Names file and field or tensor."""


class UnknownArchitectureError(CheckpointError):
    """The checkpoint's architecture is not among those supported; the message lists them."""


class DownloadError(OctavoError):
    """A model could not be fetched. Says what to do; nothing half-written is left."""


class PlatformError(OctavoError):
    """The operating system or processor is not supported."""


class QueueFullError(OctavoError):
    """The waiting queue is at its limit."""


class TierError(OctavoError):
    """A page could not be written to or read from the swap space or the stored prefixes. Logged; the tokens are computed again."""


class RequestFailedError(OctavoError):
    """One request failed inside the engine; the engine and all other requests go on."""


class EngineDeadError(OctavoError):
    """The engine process has ended or does not answer."""
