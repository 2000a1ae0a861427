"""A step of an engine in the caller's thread."""

from octavo.engine.loop import Engine
from octavo.engine.messages import StepOutputs
from octavo.errors import EngineDeadError


def take_step(engine: Engine) -> StepOutputs:
    """Its next step. Raises EngineDeadError if that goes wrong, whatever it is."""
    try:
        return engine.step()
    except Exception as error:
        raise EngineDeadError(f"the engine has failed: {type(error).__name__}: {error}") from error
