"""Skills: their files, their catalogue within its budget, mentions, and bodies on demand."""

import pytest
from workplace import say, work
from worlds import MemoryWorld, state, texts

from palimpsest.core.events import ContextStated, Statement
from palimpsest.core.front_matter import read_front_matter
from palimpsest.peers.codex import codex_skills
from palimpsest.policies.named import profile
from palimpsest.sources.sets import our_skills
from palimpsest.sources.skills import (
    Mentions,
    Skill,
    SkillRoot,
    catalogue_budget,
    find_skills,
    fitted_lines,
    in_catalogue_order,
    mentioned_bodies,
    mentioned_skills,
    mentions_in,
)

DEPLOY = "---\nname: deploy\ndescription: how to deploy\n---\n\nRun make.\n"


def skill(name: str, description: str = "what it does", folder: str = "/s") -> Skill:
    return Skill(name, description, f"{folder}/{name}/SKILL.md")


def test_a_front_matter_has_plain_quoted_and_folded_values_and_a_text_without_one_has_none() -> None:
    text = (
        "---\nname: \"de\\\"ploy\"\ndescription: >-\n  first\n  second\nnote: 'it''s'\nurl: http://x # remark\nlist:\n  - one\nempty:\n"
        "中文: 值\nlines: |\n  a\n  b\n---\nbody"
    )
    front = read_front_matter(text)
    assert front is not None
    assert front.texts() == {
        "name": 'de"ploy',
        "description": "first second",
        "note": "it's",
        "url": "http://x",
        "list": "- one",
        "empty": "",
        "lines": "a\nb",
    }
    assert read_front_matter("name: x") is None
    assert read_front_matter("---\nname: x\n") is None


def test_skills_are_found_below_their_roots_with_bounds_on_names_descriptions_depth_and_links() -> None:
    files = {
        "/home/u/skills/deploy/SKILL.md": DEPLOY,
        "/home/u/skills/nameless/SKILL.md": "---\ndescription: 部署\n---\n",
        "/home/u/skills/silent/SKILL.md": "---\nname: silent\n---\n",
        "/home/u/skills/long/SKILL.md": f"---\nname: {'n' * 65}\ndescription: d\n---\n",
        "/home/u/skills/.hidden/x/SKILL.md": DEPLOY,
        "/home/u/skills/1/2/3/4/5/6/SKILL.md": DEPLOY.replace("deploy\n", "deep\n", 1),
        "/home/u/skills/1/2/3/4/5/6/7/SKILL.md": DEPLOY,
        "/home/u/skills/plain/SKILL.md": "no front matter",
    }
    root = SkillRoot("/home/u/skills", "user")

    assert find_skills(MemoryWorld(files=files), (root, root)) == (
        Skill("deploy", "how to deploy", "/home/u/skills/deploy/SKILL.md"),
        Skill("nameless", "部署", "/home/u/skills/nameless/SKILL.md"),
        Skill("deep", "how to deploy", "/home/u/skills/1/2/3/4/5/6/SKILL.md"),
    )


def test_a_link_out_of_the_project_gives_no_skills() -> None:
    files = {
        "/repo/.git/HEAD": "",
        "/repo/.agents/skills/deploy/SKILL.md": DEPLOY,
        "/secret/SKILL.md": DEPLOY,
    }
    world = MemoryWorld(files=files, links={"/repo/.agents/skills/deploy/SKILL.md": "/secret/SKILL.md"})

    assert [each.name for each in our_skills(MemoryWorld(files=files))] == ["deploy"]
    assert our_skills(world) == ()


@pytest.mark.states("CX-16")
def test_a_mentioned_skill_is_stated_once_after_the_users_message_and_variables_are_no_mentions() -> None:
    world = MemoryWorld(files={"/repo/.git/HEAD": "", "/repo/.codex/skills/deploy/SKILL.md": DEPLOY})
    mentions = mentions_in("please $deploy, and $deploy again; echo $PATH $HOME a$b")
    found = mentioned_skills(mentions, codex_skills(world))
    body, unreadable = mentioned_bodies(world, found)
    path = "/repo/.codex/skills/deploy/SKILL.md"

    assert mentions == Mentions(("deploy",))
    expected = Statement("skill", f"<skill>\n<name>deploy</name>\n<path>{path}</path>\n{DEPLOY}\n</skill>", "user", value=path)
    assert (body, unreadable) == (ContextStated((expected,)), ())
    session = work(profile("codex"))
    say(session, "please $deploy")
    session.log.append(body or ContextStated())
    assert [item.kind for item in session.log.view.items] == ["user", "context"]


@pytest.mark.states("CX-16")
def test_the_documented_variant_knows_both_sigils_and_the_measured_one_the_dollar_only() -> None:
    assert mentions_in("@deploy $test", "$@").names == ("deploy", "test")
    assert mentions_in("@deploy $test").names == ("test",)
    assert mentions_in("mail me@deploy.org", "$@").names == ()


@pytest.mark.states("CX-16")
def test_a_skill_that_cannot_be_read_is_named_and_not_stated() -> None:
    assert mentioned_bodies(MemoryWorld(), (skill("gone"),)) == (None, ("/s/gone/SKILL.md",))


@pytest.mark.states("CX-17")
def test_an_ambiguous_name_gives_nothing_and_an_exact_path_does() -> None:
    one, other = skill("deploy", folder="/one"), skill("deploy", folder="/other")

    assert mentioned_skills(mentions_in("$deploy"), (one, other)) == ()
    assert mentioned_skills(mentions_in("[$deploy](/other/deploy/SKILL.md)"), (one, other)) == (other,)
    assert mentioned_skills(mentions_in("[$deploy](/nowhere)"), (one,)) == ()


@pytest.mark.states("CX-17")
def test_skills_of_the_memory_folder_are_never_in_the_catalogue() -> None:
    memory, own, link = (f"/home/u/.codex/{each}/SKILL.md" for each in ("memories/skills/m", "skills/d", "skills/l"))
    # The home folder is the project, so that the link does not lead out of it.
    files = {"/home/u/.git/HEAD": "", memory: DEPLOY, own: DEPLOY, link: DEPLOY}
    world = MemoryWorld(files=files, links={link: memory}).with_state(cwd="/home/u")

    assert [each.path for each in codex_skills(world)] == [own]


@pytest.mark.states("CX-18")
def test_the_catalogue_stays_within_two_percent_by_shortening_descriptions_evenly() -> None:
    skills = [skill("a", "x" * 100), skill("b", "y" * 10), skill("c", "z" * 100)]
    bare = sum(len(f"- {name}:  (file: /s/{name}/SKILL.md)\n") for name in "abc")

    assert catalogue_budget(200_000) == 16_000
    assert catalogue_budget(0) == 8_000
    assert catalogue_budget(200_000, 50_000) == 40_000
    assert fitted_lines(skills, bare + 210) == (
        [
            f"- a: {'x' * 100} (file: /s/a/SKILL.md)",
            f"- b: {'y' * 10} (file: /s/b/SKILL.md)",
            f"- c: {'z' * 100} (file: /s/c/SKILL.md)",
        ],
        0,
    )
    assert fitted_lines(skills, bare + 51)[0] == [
        f"- a: {'x' * 20} (file: /s/a/SKILL.md)",
        f"- b: {'y' * 10} (file: /s/b/SKILL.md)",
        f"- c: {'z' * 20} (file: /s/c/SKILL.md)",
    ]
    assert fitted_lines(skills, bare - 1) == (["- a:  (file: /s/a/SKILL.md)", "- b:  (file: /s/b/SKILL.md)"], 1)


@pytest.mark.states("CX-18")
def test_the_whole_statement_says_how_many_skills_did_not_fit() -> None:
    files = {f"/home/u/.codex/skills/s{number}/SKILL.md": f"---\nname: s{number}\ndescription: {'d' * 900}\n---\n" for number in range(100)}
    world = MemoryWorld(files=files)
    measured, documented = work(profile("codex-0.166")), work(profile("codex"))

    text = texts(state(measured, world.with_state(window=50_000)))["skills"]
    assert len(text.partition("### How")[0].encode()) < 4_000 + 300
    assert "more skills did not fit]" in text
    assert len(texts(state(documented, world.with_state(window=50_000)))["skills"]) > 90_000


def test_the_catalogue_is_ordered_by_scope_and_then_by_name() -> None:
    repo, user, system = Skill("b", "d", "/1", "repo"), Skill("a", "d", "/2", "user"), Skill("z", "d", "/3", "system")

    assert in_catalogue_order((user, repo, system)) == (system, repo, user)


@pytest.mark.states("OC-48")
def test_the_list_shows_name_and_description_and_the_body_comes_by_the_tool_only() -> None:
    files = {
        "/repo/.git/HEAD": "",
        "/repo/.claude/skills/deploy/SKILL.md": DEPLOY,
        "/repo/.claude/skills/deploy/run.sh": "",
        "/repo/.claude/skills/quiet/SKILL.md": "---\nname: quiet\n---\nHush.",
    }
    world = MemoryWorld(files=files)
    session = work(profile("opencode-1.18"))
    text = texts(state(session, world))["skills"]

    assert text.startswith("<available_skills>\n")
    assert "- deploy: how to deploy" in text
    assert "quiet" not in text
    assert "Run make." not in text
    found = find_skills(world, (SkillRoot("/repo/.claude/skills", "repo"),), needs_description=False)
    assert [skill.name for skill in found] == ["deploy", "quiet"]


@pytest.mark.states("CL-44")
def test_a_body_is_absent_from_the_head_until_it_is_asked_for() -> None:
    world = MemoryWorld(files={"/home/u/.claude/skills/deploy/SKILL.md": DEPLOY})
    session = work(profile("classroom"))
    stated = texts(state(session, world))

    assert "- deploy: how to deploy" in stated["skills"]
    assert not any("Run make." in text for text in stated.values())
