"""An input filter for the OpenAI Agents SDK: the items of every model call are followed, those of the session stay as they are."""

from collections.abc import Mapping
from typing import Any

from palimpsest.engine.conversation.several import Conversations
from palimpsest.stores.home import AnyHome


class InputFilter:
    """A filter for `RunConfig(call_model_input_filter=...)`; `conversations` are those that it follows.

    The replies are read from the next input: the SDK gives a filter no usage. Without a `home` the conversations are kept in memory; with
    a `name` another process goes on with them.
    """

    def __init__(
        self, name: str = "", *, home: AnyHome | str | None = None, profile: str = "palimpsest", settings: Mapping[str, str] | None = None
    ) -> None:
        self.conversations = Conversations(name, home=home, profile=profile, settings=settings)

    async def __call__(self, data: Any) -> Any:
        """Return the input to send for a `CallModelData`."""
        given = data.model_data
        model = getattr(data.agent.model, "model", data.agent.model) or "unknown"
        conversation = self.conversations.of(given.input, model=str(model), system=given.instructions, shape="responses")
        sent = await conversation.aprepare(given.input, tools=_declared(data.agent), system=given.instructions)
        return type(given)(input=list(sent), instructions=given.instructions)


def _declared(agent: Any) -> list[dict[str, Any]]:
    """The function tools of an agent as they are declared to the model; the filter is not given the request itself."""
    return [
        {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.params_json_schema}
        for tool in agent.tools
        if hasattr(tool, "params_json_schema")
    ]
