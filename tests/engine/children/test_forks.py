"""Sub-agents that start from the conversation of their parent, in the middle of its turn."""

import asyncio
from pathlib import Path

from coding_tasks import use
from families import Family, spawn, wait

from palimpsest.core.events import ToolReturned, TurnEnded, ViewEdited
from palimpsest.core.items import text_of
from palimpsest.core.verify import verify

FORKED = "The conversation was forked here, before this call had a result. It belongs to the other agent; you are now Ada."


def forked(family: Family) -> tuple[str, str]:
    """The session of a parent that forks a sub-agent in the middle of a reply with three calls, and that of the sub-agent."""

    async def run() -> str:
        calls = (use("glob", pattern="*"), spawn("Ada", "now you", fork=True), use("glob", pattern="**"))
        root = family.agent("Hello.", calls, wait("Ada"), "done", children={"Ada": ("I know it all.",)})
        async with root as agent:
            await agent.ask("the first prompt")
            await agent.ask("the second prompt")
            return agent.id

    session = asyncio.run(run())
    return session, family.sessions(session)["Ada"]


def shown(family: Family, session: str) -> list[tuple[str, str]]:
    with family.home.open(session, write=False) as log:
        items = [item for item in log.view.items if item.kind != "context"]
        return [(item.kind, text_of(item.content)) for item in items]


def test_a_forked_child_sees_the_conversation_and_its_open_calls_are_answered_in_the_fork_alone(tmp_path: Path) -> None:
    family = Family(tmp_path)
    session, child = forked(family)
    view = shown(family, child)
    assert [kind for kind, _ in view] == [
        "user",
        "assistant",
        "user",
        "call",
        "call",
        "call",
        "result",
        "result",
        "result",
        "user",
        "assistant",
    ]
    assert [text for kind, text in view if kind != "call"] == [
        *("the first prompt", "Hello.", "the second prompt"),
        *("no file matches", FORKED, FORKED),
        *("now you", "I know it all."),
    ]
    assert FORKED not in str(family.bodies(session))
    assert [body.stop for body in family.bodies(child) if isinstance(body, TurnEnded)] == ["done", "forked", "done"]
    for each in (session, child):
        assert verify(family.home.store, each, family.home.blobs).ok
    # The calls of the parent before the fork are not paid twice.
    first = [text_of(body.result) for body in family.bodies(child) if isinstance(body, ToolReturned)]
    assert first == ["no file matches", FORKED, FORKED]
    with family.home.open(child, write=False) as log:
        assert log.ledger.calls == 1


def test_a_fork_under_codex_0_166_keeps_messages_and_closing_replies_and_records_what_it_hides(tmp_path: Path) -> None:
    family = Family(tmp_path, profile="codex-0.166")
    _, child = forked(family)
    assert shown(family, child) == [
        ("user", "the first prompt"),
        ("assistant", "Hello."),
        ("user", "the second prompt"),
        ("user", "now you"),
        ("assistant", "I know it all."),
    ]
    (edit,) = [body for body in family.bodies(child) if isinstance(body, ViewEdited)]
    assert edit.by == "fork"


def test_a_fork_edits_at_once_what_its_parent_has_read_unless_the_file_changed_or_the_fork_does_not_show_it(tmp_path: Path) -> None:
    edits = tuple(use("edit", path=path, old="1", new="2") for path in ("a.txt", "b.txt", "c.txt"))

    def results(profile: str) -> list[str]:
        (tmp_path / profile).mkdir()
        family = Family(tmp_path / profile, profile=profile)
        for name in "abc":
            (family.project / f"{name}.txt").write_text("1\n")

        async def run() -> str:
            reads = (use("read", path="a.txt"), use("read", path="b.txt"), use("bash", command="echo 7 | tee b.txt"))
            root = family.agent(reads, spawn("Ada", fork=True), wait("Ada"), "done", children={"Ada": (edits, "changed")})
            async with root as agent:
                await agent.ask("go")
                return agent.id

        child = family.sessions(asyncio.run(run()))["Ada"]
        found = [text_of(body.result) for body in family.bodies(child) if isinstance(body, ToolReturned) and body.tool == "edit"]
        assert (family.project / "a.txt").read_text() == ("2\n" if found[0].startswith("Edited") else "1\n")
        return found

    unread = "{} has not been read in this session; read it before changing it"
    assert results("palimpsest") == [
        "Edited a.txt: 1 replacement",
        "b.txt has changed since it was read; read it again before changing it",
        unread.format("c.txt"),
    ]
    assert results("codex-0.166") == [unread.format(f"{name}.txt") for name in "abc"]
