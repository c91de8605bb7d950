"""``Tool``: the interface of what a policy can call between two of its turns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar


class ToolError(ValueError):
    """A call has no result; its text is what the policy reads instead."""


class Tool(ABC):
    """A function of named arguments; several threads may call it at once."""

    name: ClassVar[str]
    description: ClassVar[str]
    #: JSON schema of the arguments, as chat templates want it.
    parameters: ClassVar[Mapping[str, Any]]

    @abstractmethod
    def run(self, arguments: Mapping[str, Any]) -> str:
        """Return the result as text; ``ToolError`` if the arguments are wrong or it fails."""

    def schema(self) -> dict[str, Any]:
        """Return the tool in the form of OpenAI's ``tools`` list."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
        }
        return {"type": "function", "function": function}

    def text_argument(self, arguments: Mapping[str, Any], name: str) -> str:
        """Return an argument that must be text; ``ToolError`` if it is missing or another type."""
        value = arguments.get(name)
        if not isinstance(value, str):
            raise ToolError(f"expected the argument {name} as text; got {sorted(arguments)}")
        return value
