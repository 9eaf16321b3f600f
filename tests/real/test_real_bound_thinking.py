"""Claude Code itself on a model that binds its thinking, behind the gateway: `./run pytest -m real tests/real`."""

import json
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from desks import ClaudeDesk, run_agent
from npm_programs import npm_program, pal_command
from scripted_api import ScriptedApi

from pal_lab.bench.live import gateway_process
from palimpsest.testing.strict.answers import StrictRequest, blocks_of
from palimpsest.testing.strict.provider import StrictAnswer, StrictProvider, calls

pytestmark = pytest.mark.real
# Above 100,000 tokens it costs five times as much, so that an edit pays in a day of this length.
MODEL = "claude-haiku-5-5"
OPTIONS = ["-p", "--model", MODEL, "--permission-mode", "bypassPermissions"]
PROMPTS = ("Raise the limits of the first modules.", "Now those of the next ones.", "And the last ones, please.")
MODULES_A_PROMPT = 12


@pytest.fixture(scope="session", params=["2.1.325", "latest"])
def claude(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    name = f"CLAUDE_CODE_{request.param.upper().replace('.', '_')}"
    return npm_program(tmp_path_factory.mktemp("npm"), f"@anthropic-ai/claude-code@{request.param}", "claude", name)


def working_day(project: Path) -> list[list[StrictAnswer]]:
    """Make a project of modules, and return the replies to each prompt: all modules are read at once, then each is edited, then checked."""
    days: list[list[StrictAnswer]] = []
    for first in range(0, MODULES_A_PROMPT * len(PROMPTS), MODULES_A_PROMPT):
        reads, edits = [], list[dict[str, Any]]()
        for number in range(first, first + MODULES_A_PROMPT):
            path = project / f"module_{number:02}.py"
            lines = (f"def step_{line}(value):\n    return value * {number} + {line}  # one of many\n\n\n" for line in range(150))
            path.write_text("".join(lines) + f"LIMIT = {number}\n")
            reads.append(calls("Read", file_path=str(path)))
            edits.append(calls("Edit", file_path=str(path), old_string=f"LIMIT = {number}\n", new_string=f"LIMIT = {number + 100}\n"))
        check = calls("Bash", command=f"tail -qn 1 module_*.py; echo {first} >> done.txt", description="Check")
        days.append([reads, *([edit] for edit in edits[:4]), edits[4:], [check]])
    return days


def model_of(days: list[list[StrictAnswer]]) -> Any:
    """A model that gives the next reply to the prompt that was said last; it looks at nothing but the list."""

    def answered(request: StrictRequest) -> StrictAnswer:
        listed = json.dumps([message for message in request.messages if message["role"] == "user"])
        prompt = max((number for number, text in enumerate(PROMPTS) if text in listed), default=-1)
        if prompt < 0 or not request.body.get("tools"):
            return "A title"
        made = sum(any(block["type"] == "tool_use" for block in blocks_of(message["content"])) for message in request.messages)
        before = sum(len(day) for day in days[:prompt])
        return days[prompt][made - before] if made - before < len(days[prompt]) else f"Prompt {prompt} is done."

    return answered


def files_of(project: Path) -> dict[str, bytes]:
    return {str(path.relative_to(project)): path.read_bytes() for path in sorted(project.rglob("*")) if path.is_file()}


def worked(claude: Path, folder: Path, way: str, *, threads: bool) -> tuple[StrictProvider, dict[str, bytes], list[dict[str, Any]]]:
    """Say all prompts in one session, directly, through `pal gateway` or each in `pal wrap`; the provider, the files, and what was said."""
    days: list[list[StrictAnswer]] = []
    with StrictProvider(model_of(days)) as model:
        desk = ClaudeDesk(claude, folder, ScriptedApi(model.url))
        days += working_day(desk.project)
        variables = desk.variables | ({"CLAUDE_CODE_TETHER_LIVE": "true"} if threads else {})
        said: list[dict[str, Any]] = []
        commands = [[str(claude), *OPTIONS, *(["--continue"] if number else []), prompt] for number, prompt in enumerate(PROMPTS)]
        if way == "gateway":
            with gateway_process(pal_command(), "thrifty", folder / "pal", model.url) as (url, reports):
                for command in commands:
                    before = len(model.records)
                    run_agent(command, desk.project, variables | {"ANTHROPIC_BASE_URL": url})
                    answered = [each for each in model.records[before:] if each.status == 200 and "/count_tokens" not in each.request.path]
                    said += [json.loads(reports()) for _ in answered]
        else:
            for command in commands:
                wrapped = [*pal_command(), "wrap", "claude", "--mode", "thrifty", "--", *command[1:]]
                run_agent(command if way == "directly" else wrapped, desk.project, variables)
        return model, files_of(desk.project), said


def bills(model: StrictProvider) -> list[float]:
    """The bill after each request."""
    return [*accumulate(record.dollars for record in model.records)]


@pytest.mark.states("PV-16")
@pytest.mark.states("PV-20")
@pytest.mark.states("PV-22")
@pytest.mark.parametrize("threads", [False, True])
def test_a_session_on_a_bound_model_has_no_refusal_because_of_us_and_the_same_files_at_its_end(
    claude: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, threads: bool
) -> None:
    direct, files, _ = worked(claude, tmp_path / "directly", "directly", threads=threads)
    found = {way: worked(claude, tmp_path / way, way, threads=threads) for way in ("gateway", "wrap")}
    with capsys.disabled():
        for way, (model, _, _) in {"directly": (direct, {}, []), **found}.items():
            counts = model.counts
            kept = f"{counts.thinking_kept} of {counts.thinking_sent} thinking blocks read"
            print(f"\n{way}: {counts.requests} requests, ${counts.dollars:.4f}, refused {dict(counts.refused)}, {kept}")
        print(json.dumps(found["gateway"][2][-1]))
    assert (direct.counts.refused, any("continue" in str(body.get("thread")) for body in direct.bodies)) == ({}, threads)
    for model, after, _ in found.values():
        assert model.counts.refused == {}
        assert after == files
        assert all(bill <= 1.01 * alone for bill, alone in zip(bills(model), bills(direct), strict=True))
    said, model = found["gateway"][2], found["gateway"][0]
    # Edits took thinking away, and paid.
    assert said[-1]["reasoning_lost"]["blocks"] > 0
    assert model.counts.dollars < 0.9 * direct.counts.dollars
    sessions = {line["session"]: line for line in said}
    assert sum(line["usd"] for line in sessions.values()) == pytest.approx(model.counts.dollars, rel=0.01)
    assert sum(line["usd_without"] for line in sessions.values()) == pytest.approx(direct.counts.dollars, rel=0.01)
