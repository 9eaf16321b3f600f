"""What counts as a summary in a model's reply: words, and no tool call."""

from palimpsest.core.errors import BadInput, WireError
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Text, ToolCall, text_of


def summary_in(reply: ModelReplied) -> str:
    """The text of a summary; one that calls a tool or says nothing is refused."""
    if any(isinstance(part, ToolCall) for part in reply.parts):
        raise WireError("the summary is a tool call")
    text = "\n".join(text_of(part) for part in reply.parts if isinstance(part, Text)).strip()
    if not text:
        raise BadInput("the summary is empty")
    return text
