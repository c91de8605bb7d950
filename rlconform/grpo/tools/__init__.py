"""Tools that a policy calls between its turns: parsing of calls, a calculator, retrieval."""

from rlconform.grpo.tools.base import Tool, ToolError
from rlconform.grpo.tools.tool_calls import (
    DigitCalls,
    HermesCalls,
    MalformedCall,
    ToolCall,
    ToolFormat,
)

__all__ = [
    "DigitCalls",
    "HermesCalls",
    "MalformedCall",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolFormat",
]
