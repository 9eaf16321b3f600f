"""Distinguishes real user messages from context that is sent in the role of the user."""

from collections.abc import Iterable

from palimpsest.core.items import Item

# Opening and closing text of context in imported messages; our own items have a kind instead.
_TAGS = (
    ("# agents.md instructions for ", "</instructions>"),
    ("<environment_context>", "</environment_context>"),
    ("<skill>", "</skill>"),
    ("<user_shell_command>", "</user_shell_command>"),
    ("<turn_aborted>", "</turn_aborted>"),
    ("<subagent_notification>", "</subagent_notification>"),
    ("<hook_prompt", "</hook_prompt>"),
    ("<user_instructions>", "</user_instructions>"),
    ("<recommended_plugins>", "</recommended_plugins>"),
)
_EXTERNAL = "<external_"
_LONGEST = max(len(start) for start, _ in _TAGS)


def is_turn_boundary(item: Item) -> bool:
    """Whether an item is a real user message; its kind decides, never its text."""
    return item.kind in ("user", "steering")


def is_context_text(text: str, *, session_tags_open: bool = False) -> bool:
    """Whether an imported text is context: it starts and ends with the tags of one.

    With `session_tags_open` the opening tag is enough for instructions and environment, as in older files.
    """
    body = text.strip()
    start, end = _ascii_lower(body[:_LONGEST]), _ascii_lower(body[-64:])
    for number, (opening, closing) in enumerate(_TAGS):
        if start.startswith(opening):
            return end.endswith(closing) or (session_tags_open and number < 2)
    if start.startswith(_EXTERNAL):
        name = body[1 : body.find(">")] if ">" in body else ""
        return bool(name) and " " not in name and _ascii_lower(body).endswith(_ascii_lower(f"</{name}>"))
    return False


def is_real_user_message(texts: Iterable[str], *, session_tags_open: bool = False) -> bool:
    """Whether an imported message was typed by the user: none of its parts is context."""
    return not any(is_context_text(text, session_tags_open=session_tags_open) for text in texts)


def _ascii_lower(text: str) -> str:
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")
