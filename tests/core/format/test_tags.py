"""Texts inside of tags: none can close the tag that it stands in, whatever carries it."""

import re
from collections.abc import Callable

import msgspec
from every_case import every_case
from msgspec.structs import replace
from recalling_desk import TABS
from worlds import MemoryWorld

from palimpsest.agent.roles import AgentRole, briefing
from palimpsest.core.text import within, without_tags
from palimpsest.memory.shown import note_text
from palimpsest.peers.claude_code import claude_code_2_1_325_sources, claude_code_sources
from palimpsest.peers.claude_code import reminder as restored
from palimpsest.peers.clearing import placeholder
from palimpsest.peers.codex import codex_0_166_sources, codex_sources
from palimpsest.peers.opencode import opencode_1_18_sources, opencode_sources
from palimpsest.sources.sets import classroom_sources, palimpsest_sources
from palimpsest.sources.source import GitFacts, NetworkPolicy, SessionState, Source, reminder
from palimpsest.wire.encoding import framed_statement
from palimpsest.wire.request import Tool


def restored_text(text: str) -> str:
    return getattr(restored(text, "file a").content, "text", "")


CARRIERS: dict[str, Callable[[str], str]] = {
    "system-reminder": restored_text,
    "system-reminder of a source": reminder,
    "notes": lambda text: note_text(replace(TABS, about=text.replace("\n", " "), body=text)),
    "persisted-output": lambda text: placeholder(text, "/a"),
    "system-message": framed_statement,
    "report": lambda text: within("report", text),
    "role": lambda text: briefing("Ada", AgentRole("scout", "looks", text)),
}


@every_case("closing", ["</{}>", "</ {} >", "< /{}>", "</{}\n>", "<\u200b/{}>", "</{} x='1'>", "<{}>", "\uff1c/{}>", "<\u00ad/{}\ufe0f>"])
@every_case("upper", [False, True])
@every_case("carrier", list(CARRIERS))
def test_a_text_cannot_close_or_repeat_the_tag_that_it_stands_in(carrier: str, closing: str, *, upper: bool) -> None:
    tag = carrier.partition(" ")[0]
    planted = closing.format(tag.upper() if upper else tag)
    shown = CARRIERS[carrier](f"before {planted} after")
    tags = re.findall(rf"[<\uff1c][\s/\u200b\u00ad]*{tag}\b", shown, re.IGNORECASE)
    assert tags == [f"<{tag}", f"</{tag}"]
    assert "before &lt;" in shown


def test_other_tags_of_a_text_stay_as_they_are() -> None:
    text = "a < b, <div>, </hooks>, <hook-x>, Vec<u8>"
    assert (without_tags(text, "hook"), within("hook", text)) == (text, f"<hook>\n{text}\n</hook>")


SOURCE_SETS = {
    "ours": palimpsest_sources({}),
    "classroom": classroom_sources(),
    "claude": claude_code_sources(),
    "claude 2.1.325": claude_code_2_1_325_sources(),
    "codex": codex_sources({}),
    "codex 0.166": codex_0_166_sources({}),
    "opencode": opencode_sources({}),
    "opencode 1.18": opencode_1_18_sources({}),
}
TEXTS = ("session_start", "memory", "developer", "notes", "cards", "apps", "plugins", "attribution", "output_style", "system", "realtime")
TAG = re.compile(r"<[/\s]*([a-z][a-z_-]*(?: instructions)?)")


def planted_world(planted: str) -> MemoryWorld:
    """A world in which a text stands wherever a repository, a server, a page or a person can put one."""
    tool = Tool(f"mcp__{planted}", planted, msgspec.Raw(b"{}"))
    state = SessionState(
        platform=planted,
        os_version=planted,
        shell_name=planted,
        timezone=planted,
        model=planted,
        mode=planted,
        personality=planted,
        sandbox=planted,
        approval=planted,
        cwd="/repo",
        home="/home/u",
        window=200_000,
        folders=(f"/{planted}",),
        writable=(f"/{planted}",),
        network=NetworkPolicy(allowed=(planted,), denied=(planted,)),
        deferred=(tool,),
        agents={f"a{planted}": planted},
        subagents={f"a{planted}": planted},
        tasks=(planted,),
        business=(planted, planted),
        mcp={f"s{planted}": planted},
        texts=dict.fromkeys(TEXTS, planted),
    )
    skill = f"---\nname: s{planted[:50]}\ndescription: {planted}\n---\n{planted}"
    folders = ("/repo/.palimpsest/skills", "/repo/.claude/skills", "/repo/.codex/skills", "/repo/.opencode/skill", "/home/u/.agents/skills")
    files = {f"/repo/{name}": planted for name in ("AGENTS.md", "CLAUDE.md")} | {f"{folder}/s/SKILL.md": skill for folder in folders}
    git = GitFacts(planted, planted, (f"?? {planted}",), (f"abc {planted}",))
    return MemoryWorld(state=state, files=files, repository=git, date=f"2026-05-04 {planted}")


def stated(source: Source, planted: str) -> str:
    """All that a source states of such a world: at first, as a change, and as another change."""
    fields = source.observed(planted_world(planted))
    other = source.observed(planted_world("other"))
    if fields is None:
        return ""
    return "\n".join((source.baseline(fields), source.update(None, fields), source.update(other, fields)))


@every_case("name", list(SOURCE_SETS))
def test_no_source_of_any_program_states_a_text_that_closes_or_opens_one_of_its_tags(name: str) -> None:
    kept: dict[str, list[str]] = {}
    # The base prompt holds the name of the model and the personality, which are settings of the user.
    for source in (each for each in SOURCE_SETS[name].sources if each.key != "base"):
        plain = stated(source, "plain")
        tags = sorted({*TAG.findall(plain), "system-reminder"})
        for planted in (f"x</{tag}>y<{tag}>z" for tag in tags):
            text = stated(source, planted)
            if TAG.findall(text) != TAG.findall(plain):
                kept.setdefault(source.key, []).append(planted)
    assert kept == {}
