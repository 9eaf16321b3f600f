"""The base prompt: one text of ours for each model family, and the notice that another model goes on."""

import pkgutil
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final, TypeAlias

from palimpsest.core.errors import BadInput
from palimpsest.core.format.tags import within
from palimpsest.core.items import Role
from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.sources.source import Fields, Source, World

_PLACEHOLDER: Final = lazy_pattern(r"\{\{(\w+)\}\}")
_INCLUDE: Final = lazy_pattern(r"^\{\{> (\S+)\}\}$", re.MULTILINE)

Families: TypeAlias = Sequence[tuple[tuple[str, ...], str]]
"""Rules for the family of a model: the first rule counts whose words all occur in the name of the model."""

# An entry with several words needs all of them.
OPENCODE_FAMILIES: Final[Families] = (
    (("gpt-5",), "codex"),
    (("gpt-",), "beast"),
    (("o1",), "beast"),
    (("o3",), "beast"),
    (("gemini-",), "gemini"),
    (("claude",), "anthropic"),
    ((), "plain"),
)
OPENCODE_1_18_FAMILIES: Final[Families] = (
    (("muse",), "meta"),
    (("gpt-4",), "beast"),
    (("o1",), "beast"),
    (("o3",), "beast"),
    (("gpt", "codex"), "codex"),
    (("gpt",), "gpt"),
    (("gemini-",), "gemini"),
    (("claude",), "anthropic"),
    (("trinity",), "trinity"),
    (("kimi",), "kimi"),
    (("moonshot",), "kimi"),
    ((), "default"),
)
CODEX_FAMILIES: Final[Families] = ((("codex",), "codex"), (("gpt-5",), "gpt"), ((), "default"))
OUR_FAMILIES: Final[Families] = ((("claude",), "claude"), (("gpt",), "gpt"), ((), "default"))


def family(model: str, families: Families) -> str:
    """Return the name of the first family whose words all occur in the model name. Raises `BadInput` if there is none."""
    name = model.lower()
    for words, found in families:
        if all(word in name for word in words):
            return found
    raise BadInput(f"no prompt family fits the model {model!r}; end the list with a rule without words", where="sources")


@cache
def text_file(name: str) -> str:
    """Return a text of this package with its included texts. Raises `BadInput` if there is none of that name."""
    try:
        data = pkgutil.get_data("palimpsest.sources", f"prompts/{name}.md")
    except OSError:
        data = None
    if data is None:
        raise BadInput(f"there is no prompt {name}", where="sources")
    return _INCLUDE.sub(lambda found: text_file(found[1]), data.decode().strip())


def prompt_text(name: str, **values: str) -> str:
    """Return a text of this package with its placeholders `{{name}}` replaced; placeholders without a value become empty.

    Raises `BadInput` if there is no text of that name.
    """
    filled = _PLACEHOLDER.sub(lambda found: values.get(found[1], ""), text_file(name))
    return re.sub(r"\n{3,}", "\n\n", filled).strip()


def model_prompt(
    folder: str,
    families: Families,
    *,
    role: Role = "system",
    bakes_personality: bool = False,
    key: str = "base",
    agents: bool = False,
    slots: Sequence[str] = (),
) -> Source:
    """Return the source of the base prompt, which stands in the head; a later model gets its whole prompt in a notice at the end.

    bakes_personality: the prompt has a slot for the personality, so that it need not be stated beside it.
    slots: keys of texts of the engine that the prompt has places for, such as how to use memory.
    agents: a prompt that is given under the key of this source replaces the one of the family, as that of a configured agent.
    """

    def observed(world: World) -> Fields:
        state = world.state
        own = state.texts.get(key, "") if agents else ""
        fields = {"prompt": "own" if own.strip() else f"{folder}/{family(state.model, families)}", "own": own, "model": state.model}
        fields |= {slot: text for slot in slots if (text := state.texts.get(slot, "").strip())}
        return fields | ({"personality": state.personality} if bakes_personality and state.personality else {})

    def baseline(fields: Fields) -> str:
        if fields["own"].strip():
            return fields["own"].strip()
        personality = fields.get("personality", "")
        given = {slot: fields.get(slot, "") for slot in slots}
        return prompt_text(fields["prompt"], personality=personality_text(personality) if personality else "", **given)

    def change(previous: Fields | None, fields: Fields) -> str:
        # Another name with the same prompt changes nothing that the model could act on.
        if previous is not None and previous.get("model") == fields["model"] and previous.get("prompt") == fields["prompt"] != "own":
            return ""
        return switch_notice(fields["model"], baseline(fields))

    return Source(key, observed, baseline, change, role=role, place="head")


def switch_notice(model: str, instructions: str) -> str:
    """Return the notice that another model goes on, with its whole instructions."""
    return within("model_switch", f"{prompt_text('model_switch', model=model)}\n\n{instructions}")


def personality_text(personality: str) -> str:
    """Return the text of a personality: ours for a name that we know, else the given text itself."""
    return _named_text("personality", personality)


def mode_text(mode: str) -> str:
    """Return the rules of a mode; empty for a mode without any."""
    return _named_text("modes", mode) if mode in MODES else ""


MODES: Final = frozenset({"default", "plan", "execute", "pair_programming", "review"})
PERSONALITIES: Final = frozenset({"friendly", "pragmatic"})


def _named_text(folder: str, name: str) -> str:
    known = PERSONALITIES if folder == "personality" else MODES
    return prompt_text(f"{folder}/{name}") if name in known else name.strip()


def fixed(key: str, text: Callable[[World], str], role: Role = "system") -> Source:
    """Return a source of the head with a text that hardly ever changes, such as a version line."""

    def observed(world: World) -> Fields | None:
        found = text(world)
        return {"text": found} if found else None

    return Source(key, observed, lambda fields: fields["text"], lambda _, __: "", role=role, place="head")
