"""Two runs of an agent of the OpenAI Agents SDK over one session that is kept in a log; the model is a function of this file."""

import asyncio
import json
import tempfile

import agents
import httpx2
import openai

from palimpsest.adapters.openai_agents import ConversationSession, InputFilter
from palimpsest.follow.conversation import Conversation

ROUNDS = 12
SENT: list[int] = []


def answer(request: httpx2.Request) -> httpx2.Response:
    """Ask for one part after the other, and then be done."""
    SENT.append(len(request.content))
    number = len(SENT)
    call = {"type": "function_call", "call_id": f"call_{number}", "name": "read", "arguments": json.dumps({"number": number})}
    parts = [{"type": "output_text", "text": "Done.", "annotations": []}]
    said = {"type": "message", "id": f"m_{number}", "role": "assistant", "status": "completed", "content": parts}
    response = {"id": f"r_{number}", "object": "response", "status": "completed", "output": [call if number <= ROUNDS else said]}
    usage = {"input_tokens": len(request.content) // 4, "output_tokens": 9, "total_tokens": len(request.content) // 4 + 9}
    return httpx2.Response(200, json=response | {"usage": usage})


@agents.function_tool
def read(number: int) -> str:
    """Read a part."""
    return f"# part {number}\nvalue = {number}\n" * 800


async def run(prompt: str, home: str) -> None:
    """One run, as a process of its own would do it: the session is opened, and closed at the end."""
    offline = openai.DefaultAsyncHttpxClient(transport=httpx2.MockTransport(answer))
    async with openai.AsyncOpenAI(api_key="none", http_client=offline) as client:
        agent = agents.Agent("reader", tools=[read], model=agents.OpenAIResponsesModel("gpt-5", client))
        with Conversation.open("work", model="gpt-5", home=home, settings={"PAL_COMPACT_AT": "20000"}) as conversation:
            session = ConversationSession(conversation)
            following = InputFilter(session=session)
            config = agents.RunConfig(call_model_input_filter=following, tracing_disabled=True)
            await agents.Runner.run(agent, prompt, session=session, run_config=config, hooks=following.hooks(), max_turns=ROUNDS + 2)
            items = await session.get_items()
            kept, sent = len(json.dumps(items)) // 1000, max(SENT) // 1000
            print(f"{len(items)} items of {kept} kB in the session, at most {sent} kB were sent")
            print(sorted({edit.by for edit in conversation.audit()}))


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        for prompt in ("Read all parts.", "Thanks."):
            asyncio.run(run(prompt, home))


if __name__ == "__main__":
    main()
