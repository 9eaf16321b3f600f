"""Replies to calls beside the conversation, as tests write them."""

from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.items import Text

NO_USAGE = Usage()


def side_reply(purpose: str, model: str, usage: Usage = NO_USAGE, text: str = "") -> ModelReplied:
    return ModelReplied((Text(text, "assistant"),) if text else (), usage=usage, model=model, purpose=purpose)
