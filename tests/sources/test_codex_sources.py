"""What Codex states, statement by statement, in both variants."""

import json
from typing import Any

import pytest
from workplace import reply, say, work
from worlds import MemoryWorld, state, texts

from palimpsest.agent.session import Session
from palimpsest.core.errors import BadInput
from palimpsest.core.events import ContextStated, Event, ViewEdited
from palimpsest.core.items import Fold, Put, Text
from palimpsest.policies.named import profile
from palimpsest.sources.environment import codex_environment
from palimpsest.sources.instructions import agents_md
from palimpsest.sources.prompts import prompt_text
from palimpsest.sources.source import NetworkPolicy
from palimpsest.wire.encode import encode

GIVEN = {
    "developer": "Use tabs.",
    "memory": "You have notes.",
    "realtime": "keep it short",
    "apps": "Mail is there.",
    "plugins": "One plugin.",
    "attribution": "Sign commits.",
}
SKILL = "---\nname: deploy\ndescription: how to deploy\n---\nRun make."
WORLD = MemoryWorld(files={"/repo/.git/HEAD": "", "/repo/AGENTS.md": "be kind", "/repo/.codex/skills/deploy/SKILL.md": SKILL}).with_state(
    sandbox="workspace-write", approval="never", mode="plan", personality="friendly", texts=GIVEN
)
ENVIRONMENT = """<environment_context>
  <cwd>/repo</cwd>
  <shell>bash</shell>
  <current_date>2026-11-16</current_date>
  <timezone>Europe/Berlin</timezone>
</environment_context>"""


def codex(name: str = "codex", **settings: str) -> Session:
    return work(profile(name, settings), "gpt-5.2")


def request(session: Session) -> dict[str, object]:
    found: dict[str, object] = json.loads(encode(session.log.view, session.card, params=session.params).body)
    return found


def messages(session: Session) -> list[tuple[str, int]]:
    """Role and number of parts of each message."""
    items = request(session)["input"]
    assert isinstance(items, list)
    return [(item["role"], len(item["content"])) for item in items]


def keys(event: Event | None) -> list[str]:
    return list(texts(event))


def fold_all(session: Session) -> None:
    items = session.log.view.items
    session.log.append(ViewEdited((Fold(items[0].id, items[-1].id, (Put("summary", Text("short")),)),), by="test"))


@pytest.mark.states("CX-08")
def test_the_full_context_is_one_developer_message_and_one_user_message() -> None:
    session = codex()
    event = state(session, WORLD)

    order = ["base", "permissions", "developer", "memory", "mode", "realtime", "apps", "skills", "plugins", "attribution"]
    assert keys(event) == [*order, "instructions", "environment"]
    assert isinstance(event and event.body, ContextStated)
    say(session, "hello")
    assert messages(session) == [("developer", 9), ("user", 2), ("user", 1)]
    assert request(session)["instructions"] == prompt_text("codex/gpt", personality=prompt_text("personality/friendly"))
    stated = texts(event)
    assert stated["instructions"] == "# AGENTS.md instructions for /repo\n\n<INSTRUCTIONS>\nbe kind\n</INSTRUCTIONS>"
    assert stated["environment"] == ENVIRONMENT
    assert [stated[key].partition("\n")[0] for key in ("permissions", "mode", "realtime", "apps", "skills", "plugins")] == [
        "<permissions instructions>",
        "<collaboration_mode>",
        "<realtime_conversation>",
        "<apps_instructions>",
        "<skills_instructions>",
        "<plugins_instructions>",
    ]


@pytest.mark.states("CX-09")
def test_the_base_instructions_are_the_first_developer_item_then_memory_skills_and_permissions() -> None:
    session = codex("codex-0.166")
    event = state(session, WORLD)

    assert keys(event)[:4] == ["base", "memory", "skills", "permissions"]
    assert keys(event)[-2:] == ["instructions", "environment"]
    assert "instructions" not in request(session)
    items = request(session)["input"]
    assert isinstance(items, list)
    base = prompt_text("codex/gpt", personality=prompt_text("personality/friendly"))
    assert items[0] == {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": base}]}
    assert items[1]["role"] == "developer"


@pytest.mark.parametrize("name", ["codex", "codex-0.166"])
@pytest.mark.states("CX-10")
def test_a_changed_directory_states_only_the_environment(name: str) -> None:
    session = codex(name)
    state(session, WORLD)

    assert state(session, WORLD) is None
    world = MemoryWorld(files={**WORLD.files, "/repo/src/a.py": ""}, state=WORLD.state).with_state(cwd="/repo/src")
    stated = texts(state(session, world))
    assert list(stated) == ["environment+"]
    assert "  <cwd>/repo/src</cwd>\n" in stated["environment+"]
    assert state(session, world) is None


@pytest.mark.states("CX-10")
def test_another_shell_is_no_change_and_another_date_leaves_the_directory_out() -> None:
    session = codex()
    state(session, WORLD)

    assert state(session, WORLD.with_state(shell_name="zsh")) is None
    later = MemoryWorld(files=WORLD.files, state=WORLD.state, date="2026-11-17")
    expected = ENVIRONMENT.replace("2026-11-16", "2026-11-17").replace("  <cwd>/repo</cwd>\n", "")
    assert texts(state(session, later)) == {"environment+": expected}


@pytest.mark.states("CX-11")
def test_changes_come_in_order_and_a_new_model_says_the_personality_itself() -> None:
    session = codex()
    world = WORLD.with_state(texts={})
    state(session, world)
    changed = world.with_state(
        model="gpt-5-codex", approval="on-request", mode="execute", texts={"realtime": "brief"}, personality="pragmatic", cwd="/repo"
    )
    stated = texts(state(session, changed))

    assert list(stated) == ["base+", "permissions+", "mode+", "realtime"]
    assert stated["base+"].startswith("<model_switch>\n")
    assert prompt_text("codex/codex", personality=prompt_text("personality/pragmatic")) in stated["base+"]
    assert state(session, changed) is None


@pytest.mark.states("CX-11")
def test_the_same_model_states_another_personality_by_itself() -> None:
    session = codex()
    state(session, WORLD)

    stated = texts(state(session, WORLD.with_state(personality="pragmatic")))
    assert list(stated) == ["personality"]
    assert prompt_text("personality/pragmatic") in stated["personality"]
    assert state(session, WORLD.with_state(personality="pragmatic")) is None


@pytest.mark.parametrize("name", ["codex", "codex-0.166"])
@pytest.mark.states("CX-12")
def test_what_a_fold_removed_is_stated_again_on_the_next_turn(name: str) -> None:
    session = codex(name)
    first = texts(state(session, WORLD))
    say(session, "hello")
    reply(session, Text("done", "assistant"))
    fold_all(session)

    again = texts(state(session, WORLD))
    assert again == {key: text for key, text in first.items() if key != "base"}
    assert session.log.view.epoch == 1


def files(**named: str) -> MemoryWorld:
    """Instruction files by folder below `/repo` and name, `__` for `/`; the working directory is `/repo/a/b`."""
    paths = {f"/repo/{name.replace('__', '/')}.md": text for name, text in named.items()}
    return MemoryWorld(files={"/repo/.git/HEAD": "", "/repo/a/b/x.py": "", **paths}).with_state(cwd="/repo/a/b")


def project_text(world: MemoryWorld, limit: int = 32 * 1024, **options: Any) -> str | None:
    fields = agents_md(limit=limit, **options).observe(world)
    return None if fields is None else fields["text"]


@pytest.mark.states("CX-13")
def test_files_from_the_root_to_the_directory_share_the_limit_and_an_override_wins() -> None:
    world = files(AGENTS="root", a__AGENTS="plain", a__b__AGENTS="leaf")
    both = MemoryWorld(files={**world.files, "/repo/a/AGENTS.override.md": "override"}, state=world.state)

    assert project_text(world) == "root\n\nplain\n\nleaf"
    assert project_text(both) == "root\n\noverride\n\nleaf"
    assert project_text(world, limit=7) == "root\n\npla"
    assert project_text(world, limit=4) == "root"
    assert project_text(world, limit=0) is None


@pytest.mark.states("CX-13")
def test_a_cut_character_is_lossy_and_blank_files_cost_nothing() -> None:
    world = files(AGENTS="  \n", a__AGENTS="éé")

    assert project_text(world, limit=3) == "é\ufffd"


@pytest.mark.states("CX-13")
def test_the_users_own_file_stands_first_and_a_fallback_name_last() -> None:
    world = files(AGENTS="root")
    own = MemoryWorld(files={**world.files, "/home/u/.codex/AGENTS.md": " own \n", "/repo/a/b/README.ai": "fallback"}, state=world.state)

    assert project_text(own, fallbacks=("README.ai",)) == "own\n\n--- project-doc ---\n\nroot\n\nfallback"


@pytest.mark.states("CX-13")
def test_an_instruction_file_that_links_out_of_the_project_is_not_read() -> None:
    world = MemoryWorld(
        files={"/repo/.git/HEAD": "", "/home/u/.ssh/id": "PRIVATE", "/repo/docs/rules.md": "inside"},
        links={"/repo/AGENTS.md": "/home/u/.ssh/id"},
    )
    inside = MemoryWorld(files=world.files, links={"/repo/AGENTS.md": "/repo/docs/rules.md"})

    assert project_text(world) is None
    assert world.asked == []
    assert project_text(inside) == "inside"


@pytest.mark.states("CX-14")
def test_without_a_marker_only_the_directory_itself_is_read() -> None:
    world = files(AGENTS="root", a__b__AGENTS="leaf")
    elsewhere = MemoryWorld(files={key: text for key, text in world.files.items() if ".git" not in key}, state=world.state)

    assert project_text(elsewhere) == "leaf"
    assert project_text(world, markers=()) == "leaf"
    assert project_text(world, markers=(".hg",)) == "leaf"


@pytest.mark.states("CX-14")
def test_the_markers_are_a_list_of_names() -> None:
    session = codex(project_root_markers="[]")
    assert "root" not in texts(state(session, files(AGENTS="root", a__b__AGENTS="leaf")))["instructions"]
    with pytest.raises(BadInput, match="project_root_markers is no list of names"):
        codex(project_root_markers="[1]")
    with pytest.raises(BadInput, match="project_doc_max_bytes is 'many'"):
        codex(project_doc_max_bytes="many")


@pytest.mark.states("CX-15")
def test_the_environment_has_its_elements_in_order_and_the_network_only_with_a_policy() -> None:
    source = codex_environment()
    policy = NetworkPolicy(allowed=("a.org",), denied=("b.org",))
    fields = source.observe(MemoryWorld().with_state(network=policy, subagents={"id1": "Ada"}))

    assert fields is not None
    assert source.baseline(fields) == ENVIRONMENT.replace(
        "\n</env",
        '\n  <network enabled="true">\n    <allowed>a.org</allowed>\n    <denied>b.org</denied>\n  </network>\n'
        "  <subagents>\n    - id1: Ada\n  </subagents>\n</env",
    )
    assert source.baseline(source.observe(MemoryWorld()) or {}) == ENVIRONMENT


@pytest.mark.states("CX-15")
def test_the_measured_environment_escapes_values_and_names_the_file_system() -> None:
    source = codex_environment(filesystem=True)
    fields = source.observe(MemoryWorld().with_state(cwd="/a<b>&c", sandbox="read-only", timezone=""))

    assert source.baseline(fields or {}) == (
        "<environment_context>\n  <cwd>/a&lt;b&gt;&amp;c</cwd>\n  <shell>bash</shell>\n  <current_date>2026-11-16</current_date>\n"
        "  <filesystem><workspace_roots><root>/a&lt;b&gt;&amp;c</root></workspace_roots><profile>read-only</profile></filesystem>\n"
        "</environment_context>"
    )


def test_changed_instructions_replace_the_earlier_ones_in_0_166_and_are_not_stated_in_the_documented_variant() -> None:
    changed = MemoryWorld(files={**WORLD.files, "/repo/AGENTS.md": "be brief"}, state=WORLD.state)
    removed = MemoryWorld(files={key: text for key, text in WORLD.files.items() if "AGENTS" not in key}, state=WORLD.state)
    documented, measured = codex(), codex("codex-0.166")
    state(documented, WORLD)
    state(measured, WORLD)

    assert state(documented, changed) is None
    assert texts(state(measured, changed)) == {
        "instructions+": "These instructions replace all earlier ones from AGENTS.md.\n\n"
        "# AGENTS.md instructions for /repo\n\n<INSTRUCTIONS>\nbe brief\n</INSTRUCTIONS>"
    }
    assert list(texts(state(measured, removed))) == ["instructions+"]
    assert state(measured, removed) is None


def test_added_writable_folders_are_stated_alone_and_a_removed_one_states_all_permissions() -> None:
    session = codex("codex-0.166")
    state(session, WORLD.with_state(writable=("/data/a",)))

    added = texts(state(session, WORLD.with_state(writable=("/data/a", "/data/b"))))
    assert added["permissions+"] == (
        "<permissions instructions>\nThese folders have become writable too:\n- /data/b\n</permissions instructions>"
    )
    removed = texts(state(session, WORLD))
    assert "The permissions have changed; these replace all earlier ones." in removed["permissions+"]
