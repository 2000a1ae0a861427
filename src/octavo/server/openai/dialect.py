"""How the protocols differ whose conversations become chat requests."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from octavo.errors import UserError


@dataclass(frozen=True, slots=True)
class Dialect:
    """In which words a protocol says what chat says too."""

    id_prefix: str
    """Of a response."""
    schema_field: str
    """Where a tool has the schema of its arguments."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Fields of chat that are called otherwise."""

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """Raise errors in its words."""
        try:
            yield
        except UserError as error:
            raise self.told(error) from error

    def told(self, error: UserError) -> UserError:
        """An error of a chat request that names the field as the user has written it."""
        chats = error.parameter or ""
        name = self.names.get(chats)
        if name is None:
            return error
        word = rf"(?<![\w-]){re.escape(chats)}(?![\w-])"  # not the end of a flag's name
        return type(error)(re.sub(word, name, str(error)), parameter=name, value=error.value)


CHAT = Dialect("chatcmpl", "function.parameters")
