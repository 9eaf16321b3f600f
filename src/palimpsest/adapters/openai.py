"""The client of the openai SDK with its lists followed: `responses.create` and `chat.completions.create`, streamed or not."""

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from palimpsest.adapters.following import Replaced, followed_create
from palimpsest.engine.conversation.several import Conversations
from palimpsest.stores.home import AnyHome

Client = TypeVar("Client")


def followed(
    client: Client,
    name: str = "",
    *,
    home: AnyHome | str | None = None,
    profile: str = "palimpsest",
    settings: Mapping[str, str] | None = None,
) -> Client:
    """Return an `OpenAI` or `AsyncOpenAI` client that keeps every list it sends within the window of its model.

    Each list has a conversation: `client.conversations.all()`. Without a `home` they are kept in memory; with a `name` another process
    goes on with them. A response that goes on from a stored one has no list and is sent as it is. Everything else is the client's own.
    """
    conversations = Conversations(name, home=home, profile=profile, settings=settings)
    given = cast("Any", client)
    responses = Replaced(given.responses, create=followed_create(given.responses.create, conversations, "responses"))
    completions = Replaced(given.chat.completions, create=followed_create(given.chat.completions.create, conversations, "chat"))
    chat = Replaced(given.chat, completions=completions)
    return cast("Client", Replaced(client, responses=responses, chat=chat, conversations=conversations))
