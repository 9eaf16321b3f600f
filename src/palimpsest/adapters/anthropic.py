"""The client of the anthropic SDK with its lists followed: `messages` and `beta.messages`, whole, raw and streamed."""

from typing import Any, Unpack

from palimpsest.adapters.following import Client, Replaced, follow_client, followed_resource
from palimpsest.follow.conversation import ConversationOptions, Conversations


def followed(client: Client, name: str = "", **options: Unpack[ConversationOptions]) -> Client:
    """Return an `Anthropic` or `AsyncAnthropic` client that keeps every list it sends within the window of its model.

    Each list has a conversation: `client.conversations.all()`. Without a `home` they are kept in memory; with a `name` another process
    goes on with them. Everything else is the client's own. Raises `BadInput` for an unknown profile.
    """
    return follow_client(client, Conversations(name, **options), _resources)


def _resources(client: Any, conversations: Conversations) -> dict[str, object]:
    beta = Replaced(client.beta, messages=followed_resource(client.beta.messages, conversations, "anthropic"))
    return {"messages": followed_resource(client.messages, conversations, "anthropic"), "beta": beta}
