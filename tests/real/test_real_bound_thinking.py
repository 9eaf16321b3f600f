"""Claude Code itself on a model that binds its thinking, behind the gateway: `./run pytest -m real tests/real`."""

import json
from pathlib import Path
from typing import Any

import pytest
from desks import ClaudeDesk, run_agent
from npm_programs import npm_program, pal_command
from scripted_api import ScriptedApi

from palimpsest.lab.bench.processes.live.live_gateway import gateway_process
from palimpsest.testing.strict.answers import StrictRequest, blocks_of
from palimpsest.testing.strict.provider import StrictAnswer, StrictProvider, calls

pytestmark = pytest.mark.real
MODEL = "claude-opus-5-5"
OPTIONS = ["-p", "--model", MODEL, "--permission-mode", "bypassPermissions"]
PROMPTS = ("Raise the limits of the first modules.", "Now those of the next ones.", "And the last ones, please.")
MODULES_A_PROMPT = 6


@pytest.fixture(scope="session", params=["2.1.325", "latest"])
def claude(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    name = f"CLAUDE_CODE_{request.param.upper().replace('.', '_')}"
    return npm_program(tmp_path_factory.mktemp("npm"), f"@anthropic-ai/claude-code@{request.param}", "claude", name)


def working_day(project: Path) -> list[list[dict[str, Any]]]:
    """Make a project of modules, and return the calls of each prompt: each module is read, edited and checked."""
    days: list[list[dict[str, Any]]] = []
    for first in range(0, MODULES_A_PROMPT * len(PROMPTS), MODULES_A_PROMPT):
        made: list[dict[str, Any]] = []
        for number in range(first, first + MODULES_A_PROMPT):
            path = project / f"module_{number:02}.py"
            lines = (f"def step_{line}(value):\n    return value * {number} + {line}  # one of many\n\n\n" for line in range(150))
            path.write_text("".join(lines) + f"LIMIT = {number}\n")
            made.append(calls("Read", file_path=str(path)))
            made.append(calls("Edit", file_path=str(path), old_string=f"LIMIT = {number}\n", new_string=f"LIMIT = {number + 100}\n"))
            made.append(calls("Bash", command=f"tail -c 4000 {path.name}; echo {number} >> done.txt", description="Check"))
        days.append(made)
    return days


def model_of(days: list[list[dict[str, Any]]]) -> Any:
    """A model that makes the next call of the prompt that was said last; it looks at nothing but the list."""

    def answered(request: StrictRequest) -> StrictAnswer:
        listed = json.dumps([message for message in request.messages if message["role"] == "user"])
        prompt = max((number for number, text in enumerate(PROMPTS) if text in listed), default=-1)
        if prompt < 0 or not request.body.get("tools"):
            return "A title"
        made = sum(block["type"] == "tool_use" for message in request.messages for block in blocks_of(message["content"]))
        before = sum(len(day) for day in days[:prompt])
        return [days[prompt][made - before]] if made - before < len(days[prompt]) else f"Prompt {prompt} is done."

    return answered


def files_of(project: Path) -> dict[str, bytes]:
    return {str(path.relative_to(project)): path.read_bytes() for path in sorted(project.rglob("*")) if path.is_file()}


def worked(claude: Path, folder: Path, way: str, *, threads: bool) -> tuple[StrictProvider, dict[str, bytes], list[dict[str, Any]]]:
    """Say all prompts in one session, directly, through `pal gateway` or each in `pal wrap`; the provider, the files, and what was said."""
    days: list[list[dict[str, Any]]] = []
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
    for model, after, _ in found.values():
        # A field that the double does not know is refused directly, too.
        assert {**model.counts.refused, "unknown field": 0} == {"unknown field": 0}
        assert after == files
        assert model.counts.dollars <= 1.01 * direct.counts.dollars
    said, model = found["gateway"][2], found["gateway"][0]
    sessions = {line["session"]: line for line in said}
    assert sum(line["usd"] for line in sessions.values()) == pytest.approx(model.counts.dollars, rel=0.01)
    assert sum(line["usd_without"] for line in sessions.values()) == pytest.approx(direct.counts.dollars, rel=0.01)
