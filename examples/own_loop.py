"""An agent loop of your own in one screen: a scripted model calls a tool, and the session survives the end of the process."""

import asyncio
import json
import tempfile

from palimpsest.core.events import ModelReplied, ToolReturned, UserSaid
from palimpsest.core.items import Text, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.home import Home
from palimpsest.wire.encode import Encoder
from palimpsest.wire.models import card
from palimpsest.wire.request import Tool

MODEL = card("claude-sonnet-4-5")
TOOLS = (Tool("word_count", "Counts the words of a text."),)


def word_count(text: str) -> str:
    return f"{len(text.split())} words"


async def take_turn(log: Log, provider: Scripted, said: str) -> str:
    encoder = Encoder(MODEL, TOOLS)
    log.append(UserSaid((Text(said),)))
    while True:
        log.sync()  # what is sent can always be read back, also after a power cut
        request = encoder.encode(log.view)
        (reply,) = [part async for part in provider.stream(request) if isinstance(part, ModelReplied)]
        log.append(reply)
        calls = [part for part in reply.parts if isinstance(part, ToolCall)]
        if not calls:
            return "".join(part.text for part in reply.parts if isinstance(part, Text))
        for call in calls:
            log.append(ToolReturned(ToolResult(call.call_id, (Text(word_count(**json.loads(call.args))),)), call.tool))


def main() -> None:
    provider = Scripted(ModelReplied((ToolCall("c1", "word_count", '{"text": "to be or not to be"}'),)), "It has six words.")
    with tempfile.TemporaryDirectory() as folder:
        home = Home.at(folder)
        with home.new(cwd="/repo", model=MODEL.name, title="Counting") as log:
            print(asyncio.run(take_turn(log, provider, "How long is this?")))
            session, view = log.session, log.view
        with home.open(session, write=False) as again:
            print(f"resumed {len(again.view.items)} items after {len(provider.requests)} requests; the same view: {again.view == view}")


if __name__ == "__main__":
    main()
