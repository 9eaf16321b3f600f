"""An agent of LangChain whose model calls stay within a small window while its state keeps all messages; the model is scripted."""

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from palimpsest.adapters.langchain import middleware

ROUNDS = 12


class Reader(BaseChatModel):
    """A model that asks for one part after the other, and then is done; `sent` has the characters of each request."""

    model_name: str = "gpt-5"
    sent: list[int]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        """Return the model itself: it knows the tool."""
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.sent.append(sum(len(str(message.content)) for message in messages))
        number, tokens = len(self.sent), self.sent[-1] // 4
        calls = [{"name": "read", "args": {"number": number}, "id": f"call_{number}"}] if number <= ROUNDS else []
        usage = {"input_tokens": tokens, "output_tokens": 9, "total_tokens": tokens + 9}
        said = AIMessage("" if calls else "Done.", tool_calls=calls, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=said)])


def read(number: int) -> str:
    """Read a part."""
    return f"# part {number}\nvalue = {number}\n" * 800


def main() -> None:
    model, following = Reader(sent=[]), middleware(settings={"PAL_COMPACT_AT": "20000"})
    agent: Any = create_agent(model, [read], system_prompt="You read files.", middleware=[following])
    state = agent.invoke({"messages": [{"role": "user", "content": "Read all parts."}]}, {"recursion_limit": 100})
    kept = sum(len(str(message.content)) for message in state["messages"])
    print(f"{len(state['messages'])} messages of {kept // 1000} kB in the state, at most {max(model.sent) // 1000} kB were sent")
    (conversation,) = following.conversations.all()
    print(sorted({edit.by for edit in conversation.audit()}))


if __name__ == "__main__":
    main()
