"""The client of the openai SDK with its lists followed: `responses` and `chat.completions`, whole, raw and streamed."""

from typing import Any, Unpack

from palimpsest.adapters.following import Client, Replaced, follow_client, followed_resource
from palimpsest.follow.conversation import ConversationOptions, Conversations


def followed(client: Client, name: str = "", **options: Unpack[ConversationOptions]) -> Client:
    """Return an `OpenAI` or `AsyncOpenAI` client that keeps every list it sends within the window of its model.

    As the `followed` of the anthropic SDK. A response that goes on from a stored one has no list and is sent as it is.
    """
    return follow_client(client, Conversations(name, **options), _resources)


def _resources(client: Any, conversations: Conversations) -> dict[str, object]:
    chat = Replaced(client.chat, completions=followed_resource(client.chat.completions, conversations, "chat"))
    return {"responses": followed_resource(client.responses, conversations, "responses"), "chat": chat}
