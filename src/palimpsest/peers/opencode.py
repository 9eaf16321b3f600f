"""Profiles that imitate OpenCode, as documented and as measured in 1.18, with its settings, context sources and reminders."""

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from palimpsest.core.budget import Budget, measured_tokens
from palimpsest.core.items import Edit, Insert, Item, Mask, Put, Text, Unmask, seq_of
from palimpsest.core.plans import Moment, Plan, Policy, Proposal, Situation
from palimpsest.core.text import attribute, without_own_voice, without_tags
from palimpsest.core.tokens import CountsTokens
from palimpsest.core.view import View
from palimpsest.peers.clearing import OPENCODE_BYTES, OPENCODE_LINES, OpencodeLimiter, PruneResults
from palimpsest.peers.summaries import Anchor
from palimpsest.policies.fold import model_free_fallback
from palimpsest.policies.limits import prompt
from palimpsest.policies.profile import NO_MEMORY, NoteRules, Profile, evidence, for_any_model, strict_number
from palimpsest.sources.environment import opencode_environment
from palimpsest.sources.instructions import config_folder, file_list, folders_of_project, opencode_files
from palimpsest.sources.progress import work_state
from palimpsest.sources.prompts import Families, mcp_in_head, model_prompt
from palimpsest.sources.sets import name_list
from palimpsest.sources.skills import Skill, SkillRoot, find_skills, opencode_list
from palimpsest.sources.source import Source, SourceSet, World, given
from palimpsest.wire.models import ModelCard
from palimpsest.wire.request import Params

PLAN, BUILD = "plan", "build"
BUILDING: Final = frozenset({BUILD, "ask", "edits", "auto"})
"""The modes in which files are changed: that of OpenCode, and ours."""
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
_SOURCE: Final = "mode_reminder "
_REPLIES: Final = frozenset({"assistant", "thinking", "call"})
_USER: Final = frozenset({"user", "steering"})


@dataclass(frozen=True, slots=True)
class RemindOfMode:
    """Reminds the model of plan mode in every call under it, and after it once for each user message while a reply of it is visible.

    The original adds these texts to the request only. Here they are inserted and hidden again, so that every request can be rebuilt.
    """

    name: str = "mode_reminder"
    moments: frozenset[Moment] = frozenset({"before_call"})
    shrinks: bool = False

    def plan(self, situation: Situation) -> Plan:
        """Propose to show the reminder of the current mode behind the newest user message and to hide all others."""
        items = situation.view.items
        wanted = _wanted(situation.view.mode, items)
        place = next((place for place in range(len(items) - 1, -1, -1) if items[place].kind in _USER), None)
        current = None if place is None or not wanted else _reminder_behind(items, place, wanted)
        # Thinking is bound to what stands before it, so that what was shown stays where a model would lose it.
        outdated = () if situation.reasoning else tuple(item.id for item in _reminders(items) if not item.hidden and item is not current)
        edits: list[Edit] = [Mask(outdated)] if outdated else []
        if wanted and place is not None and current is None:
            before = items[place + 1].id if place + 1 < len(items) else ""
            edits.append(Insert((Put("reminder", Text(_mode_text(wanted)), f"{_SOURCE}{wanted}"),), before))
        return Proposal(tuple(edits), f"mode {situation.view.mode or 'none'}") if edits else ()


@dataclass(frozen=True, slots=True)
class FrameSteering:
    """Shows a message that the user sent during a turn in a frame, until a newer reply has finished or the turn has ended.

    The original frames it in the request only. Here a mask shows the framed text and is taken away again, so that every request can be
    rebuilt and the message itself stays as it was typed.
    """

    name: str = "frame_steering"
    moments: frozenset[Moment] = frozenset({"before_call"})
    shrinks: bool = False

    def plan(self, situation: Situation) -> Plan:
        """Propose a mask with the framed text for each new message of this turn, and to unmask those that were answered."""
        items = situation.view.items
        answered = max((seq_of(item.id) for item in items if item.kind in _REPLIES), default=-1)
        # Messages of an earlier turn open the first call of this one, which frames nothing.
        since = max(answered, -1 if situation.health.turn is None else situation.health.turn)
        edits: list[Edit] = []
        outdated: list[str] = []
        for item in items:
            if item.kind != "steering" or not isinstance(item.content, Text) or not item.content.text.strip():
                continue
            framed = steering_text(item.content.text)
            is_new = seq_of(item.id) > since
            if is_new and item.mask is None:
                edits.append(Mask((item.id,), framed))
            elif not is_new and item.mask is not None and item.mask.text == framed:
                outdated.append(item.id)
        if outdated and not situation.reasoning:
            edits.append(Unmask(tuple(outdated)))
        return Proposal(tuple(edits), "messages that were sent during the turn") if edits else ()


def steering_text(text: str) -> str:
    """Return a message that the user sent during a turn, in the frame in which the documented OpenCode shows it, which it cannot end."""
    return prompt("opencode/steering", text=without_own_voice(text))


def _mode_text(wanted: str) -> str:
    return prompt("opencode/plan") if wanted == PLAN else prompt("opencode/build")


def _wanted(mode: str, items: Sequence[Item]) -> str:
    """Return which reminder the next call needs; empty for none."""
    if mode == PLAN:
        return PLAN
    return BUILD if mode in BUILDING and _has_plan_reply(items) else ""


def _has_plan_reply(items: Sequence[Item]) -> bool:
    """Return whether a reply in the view was made in plan mode: the first one after a reminder of plan mode was inserted."""
    inserted = [seq_of(item.id) for item in _reminders(items) if item.source == f"{_SOURCE}{PLAN}"]
    return bool(inserted) and any(item.kind in _REPLIES and seq_of(item.id) > min(inserted) for item in items)


def _reminders(items: Sequence[Item]) -> Iterator[Item]:
    return (item for item in items if item.kind == "reminder" and item.source.startswith(_SOURCE))


def _reminder_behind(items: Sequence[Item], place: int, wanted: str) -> Item | None:
    """Return the reminder of that mode directly behind the item at `place`, if it is visible."""
    following = items[place + 1 :]
    for item in following:
        if item.kind != "reminder":
            return None
        if item.source == f"{_SOURCE}{wanted}" and item.mask is None:
            return item
    return None


_OFF: Final = frozenset({"", "0", "false", "no", "off"})


def opencode_sources(settings: Mapping[str, str]) -> SourceSet:
    """Return the documented sources: base prompt, environment, instruction files, and the text of the last message's `system`."""
    return SourceSet(
        (_base(OPENCODE_FAMILIES), opencode_environment(), _instructions(settings, global_first=False), _system(), *work_state())
    )


def opencode_1_18_sources(settings: Mapping[str, str]) -> SourceSet:
    """Return the measured sources: also instructions of MCP servers, and the list of skills."""
    return SourceSet(
        (
            _base(OPENCODE_1_18_FAMILIES),
            opencode_environment(workspace_root=True),
            _instructions(settings, global_first=True),
            _mcp(),
            opencode_list(opencode_skills),
            _system(),
            *work_state(),
        )
    )


def opencode_skills(world: World) -> tuple[Skill, ...]:
    """Return the skills of `.claude` and `.agents` of the user and of each folder up to the project root, and of the config folder.

    A skill without a description can be loaded and is not listed.
    """
    return find_skills(world, _skill_roots(world, (".claude", ".agents")), needs_description=False)


def opencode_documented_skills(world: World) -> tuple[Skill, ...]:
    """Return the skills of `.claude` of the user and of each folder up to the project root, and of the config folder."""
    return find_skills(world, _skill_roots(world, (".claude",)))


def _skill_roots(world: World, names: Sequence[str]) -> list[SkillRoot]:
    home, config = world.state.home, config_folder(world, ".config/opencode")
    roots = [SkillRoot(posixpath.join(home, name, "skills"), "user") for name in names if home]
    roots += [SkillRoot(posixpath.join(folder, name, "skills"), "repo") for folder in folders_of_project(world) for name in names]
    return roots + [SkillRoot(posixpath.join(config, name), "user") for name in ("skill", "skills") if config]


def _base(families: Families) -> Source:
    return model_prompt("opencode", families, agents=True)


def _instructions(settings: Mapping[str, str], *, global_first: bool) -> Source:
    find = opencode_files(
        global_first=global_first,
        configured=name_list(settings.get("instructions", ""), "instructions"),
        project=settings.get("OPENCODE_DISABLE_PROJECT_CONFIG", "").strip().lower() in _OFF,
        claude=settings.get("OPENCODE_DISABLE_CLAUDE_CODE_PROMPT", "").strip().lower() in _OFF,
        # 1.18 no longer looks into the custom folder.
        custom_config="" if global_first else settings.get("OPENCODE_CONFIG_DIR", "").strip(),
    )
    return file_list(find, role="system", place="head")


def _system() -> Source:
    return given("system", "system", "head")


def _mcp() -> Source:
    def block(name: str, text: str) -> str:
        return f"  <server{attribute('name', name)}>\n{without_tags(text, 'server', 'mcp_instructions')}\n  </server>"

    return mcp_in_head(block, "<mcp_instructions>", "</mcp_instructions>")


OPENCODE_REPLY: Final = 32_000
OPENCODE_RESERVED: Final = 20_000
_FALSE = frozenset({"", "false", "0", "no", "off"})


def opencode(environment: Mapping[str, str]) -> Profile:
    """Prune old results at the end of a turn, and compact by summarizing the whole view."""
    auto = _on(environment, "compaction.auto", "true") and not _on(environment, "OPENCODE_DISABLE_AUTOCOMPACT")
    prune = _on(environment, "compaction.prune", "true") and not _on(environment, "OPENCODE_DISABLE_PRUNE")
    reply_cap = _reply_cap(environment)
    anchor = Anchor(auto=auto, model=environment.get("agent.compaction.model", ""))
    return _documented(
        (*((PruneResults(),) if prune else ()), anchor, *evidence(environment), RemindOfMode(), FrameSteering()),
        lambda card: opencode_budget(card.window, card.reply, _input_limit(card), auto=auto, reply_cap=reply_cap),
        opencode_sources(environment),
        reply_cap,
    )


def _documented(policies: tuple[Policy, ...], budget: Callable[[ModelCard], Budget], sources: SourceSet, reply_cap: int) -> Profile:
    """Return the documented profile with what follows from settings that other versions do not read."""
    return Profile(
        name="opencode",
        memory=NO_MEMORY,
        policies=policies,
        fallback=model_free_fallback(),
        budget=budget,
        size_rule="opencode",
        count=_count_without_writes,
        overflow="stop",
        stops_when_fold_fails=True,
        folds_per_turn=0,
        limiter=for_any_model(OpencodeLimiter()),
        params=Params(max_tokens=reply_cap, breakpoint_rule="opencode"),
        notes=NoteRules("nothing", recall="off"),
        sources=sources,
        skills=opencode_documented_skills,
        interrupted_result="[Tool execution was interrupted]",
    )


def opencode_1_18(environment: Mapping[str, str]) -> Profile:
    """Compact by summarizing everything before a verbatim tail, also when a request was too long."""
    auto, prune = _on(environment, "compaction.auto", "true"), _on(environment, "compaction.prune")
    reserved, reply_cap = strict_number(environment, "compaction.reserved", least=0), _reply_cap(environment)
    anchor = Anchor(
        transcript="text",
        auto=auto,
        model=environment.get("agent.compaction.model", ""),
        preserve=strict_number(environment, "compaction.preserve_recent_tokens", least=0),
        tail_turns=strict_number(environment, "compaction.tail_turns", least=0),
        moments=frozenset({"before_call", "after_call", "asked", "overflow"}),
    )
    lines, size = strict_number(environment, "tool_output.max_lines"), strict_number(environment, "tool_output.max_bytes")

    def budget(card: ModelCard) -> Budget:
        return opencode_measured_budget(card.window, card.reply, _input_limit(card), reserved=reserved, auto=auto, reply_cap=reply_cap)

    policies = (*((PruneResults(),) if prune else ()), anchor, *evidence(environment), RemindOfMode())
    return replace(
        _documented(policies, budget, opencode_1_18_sources(environment), reply_cap),
        name="opencode-1.18",
        size_rule="opencode-1.18",
        count=_count_reported,
        overflow="fold",
        limiter=for_any_model(OpencodeLimiter(lines or OPENCODE_LINES, size or OPENCODE_BYTES, shell_tail=True)),
        skills=opencode_skills,
    )


def opencode_budget(
    window: int, reply_limit: int | None = None, input_limit: int | None = None, *, auto: bool = True, reply_cap: int = OPENCODE_REPLY
) -> Budget:
    """Return the documented budget of OpenCode: compact above the input limit, or above the window less the reply."""
    reply = _opencode_reply(reply_limit, reply_cap)
    usable = input_limit or window - reply
    return _opencode_levels(window, reply, usable, usable + 1 if auto else None)


def opencode_measured_budget(
    window: int,
    reply_limit: int | None = None,
    input_limit: int | None = None,
    *,
    reserved: int | None = None,
    auto: bool = True,
    reply_cap: int = OPENCODE_REPLY,
) -> Budget:
    """Return the budget of OpenCode 1.18 as measured: compact at the input limit less a reserve, or at the window less the reply."""
    reply = _opencode_reply(reply_limit, reply_cap)
    if input_limit:
        usable = max(0, input_limit - (min(OPENCODE_RESERVED, reply) if reserved is None else reserved))
    else:
        usable = max(0, window - reply)
    return _opencode_levels(window, reply, usable, usable if auto else None)


def _opencode_reply(reply_limit: int | None, cap: int) -> int:
    return min(reply_limit, cap) if reply_limit else cap


def _opencode_levels(window: int, reply: int, usable: int, level: int | None) -> Budget:
    # A window of 0 is unknown: such a model is never compacted for.
    compact_at = level if window else None
    return Budget(window=window, reply=reply, buffer=max(0, window - usable), compact_at=compact_at)


def _reply_cap(environment: Mapping[str, str]) -> int:
    """Return the most tokens of a reply that a request asks for, and for which the budget leaves room."""
    return strict_number(environment, "OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX") or OPENCODE_REPLY


def _on(environment: Mapping[str, str], name: str, default: str = "false") -> bool:
    """Return whether a switch is on: any value but an empty one, `false`, `0`, `no` and `off`."""
    return environment.get(name, default).strip().lower() not in _FALSE


def _count_without_writes(view: View, counter: CountsTokens, tools_tokens: int) -> int:
    """Return the tokens that the provider reported last, without those written to its cache; without a report, an estimate."""
    return _count_reported(view, counter, tools_tokens) - (0 if view.reported is None else view.reported.written)


def _count_reported(view: View, counter: CountsTokens, tools_tokens: int) -> int:
    """Return the tokens that the provider reported last; without a report, an estimate."""
    return counter.total(view) + tools_tokens if view.reported is None else measured_tokens(view.reported, view, counter)


def _input_limit(card: ModelCard) -> int | None:
    """The limit of a prompt, or the size at which the price of the whole call rises, which OpenCode does not know."""
    return card.working_window if card.working_window < card.window else card.input_limit
