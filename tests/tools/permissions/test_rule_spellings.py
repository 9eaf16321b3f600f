"""Rules in the spellings of other programs: each holds as its author means it, or is refused with the right spelling."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from every_case import every_case

from palimpsest.agent.decision import Allow, AskUser, Decision, Deny, Mode
from palimpsest.agent.shell import Shell
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.permissions import Permissions
from palimpsest.coding.rules import parse_rule
from palimpsest.coding.tools.change import edit_tool, patch_tool, write_tool
from palimpsest.coding.tools.read import read_tool
from palimpsest.coding.tools.web import Fetcher
from palimpsest.core.errors import BadInput
from palimpsest.core.items import ToolCall

TOOLS = {tool.name: tool for tool in (read_tool(), edit_tool(), write_tool(), patch_tool(), *Shell(Path("/")).tools(), Fetcher().tool())}
FILES = (".env", "sub/.env", "secrets/key", "src/a.py", "app/[id]/page.tsx", "app/(group)/b,c.tsx", "x.PEM")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A project below a home folder."""
    project = tmp_path / "home" / "project"
    for name in FILES:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("x\n")
    (project / "link").symlink_to("secrets")
    return Workspace(project)


@pytest.fixture
def repository(workspace: Workspace) -> Workspace:
    subprocess.run(["git", "init", "-q", workspace.root], check=True)
    return workspace


def decide(workspace: Workspace, tool: str, *rules: str, mode: Mode = "ask", sandboxed: bool = False, **arguments: object) -> Decision:
    filled = [rule.replace("ROOT", str(workspace.root)) for rule in rules]
    permissions = Permissions(mode, workspace, tuple(parse_rule(rule, ()) for rule in filled), home=workspace.root.parent)
    return permissions.decide(TOOLS[tool], ToolCall("c", tool, json.dumps(arguments)), sandboxed=sandboxed)


@every_case(
    ("rule", "denied"),
    [
        ("Read(.env)", (".env", "sub/.env")),
        ("read(.ENV)", (".env", "sub/.env")),
        ("Read(./.env)", (".env",)),
        ("Read(/.env)", (".env",)),
        ("Read(**/.env)", (".env", "sub/.env")),
        ("read(ROOT/.env)", (".env",)),
        ("Read(/ROOT/.env)", (".env",)),
        ("Read(~/project/.env)", (".env",)),
        ("Read(~/project/**)", FILES),
        ("Read(../project/sub/**)", ("sub/.env",)),
        ("Read(sub/../.env)", (".env",)),
        ("read(secret[s]/**)", ("secrets/key",)),
        ("read([!s]ecrets/**)", ()),
        ("Read(secrets/)", ("secrets/key",)),
        ("Read(link/**)", ("secrets/key",)),
        ("Read(*.{pem,key})", ("x.PEM",)),
        ("Read(app/[id]/*)", ("app/[id]/page.tsx",)),
        ("Read(.)", FILES),
        ("Read(*)", FILES),
        ("LS(secrets)", ("secrets/key",)),
    ],
)
def test_a_denial_for_reading_covers_what_its_author_means(workspace: Workspace, rule: str, denied: tuple[str, ...]) -> None:
    assert tuple(name for name in FILES if isinstance(decide(workspace, "read", f"deny {rule}", path=name), Deny)) == denied


@pytest.mark.parametrize(
    "rule", ["Edit(a.txt)", "Write(a.txt)", "MultiEdit(a.txt)", "NotebookEdit(./a.txt)", "Write", "apply_patch", "Edit"]
)
def test_a_denial_of_one_way_to_change_a_file_holds_for_all_of_them(workspace: Workspace, rule: str) -> None:
    patch = "*** Begin Patch\n*** Add File: a.txt\n+x\n*** End Patch"
    calls: tuple[tuple[str, dict[str, Any]], ...] = (
        ("edit", {"path": "a.txt", "old": "1", "new": "2"}),
        ("write", {"path": "a.txt", "content": ""}),
        ("apply_patch", {"patch": patch}),
    )
    assert [type(decide(workspace, tool, f"deny {rule}", mode="auto", **arguments)) for tool, arguments in calls] == [Deny] * 3
    written = decide(workspace, "bash", f"deny {rule}", mode="auto", sandboxed=True, command="echo x > a.txt")
    assert isinstance(written, Deny if "(" in rule else Allow)
    if "(" in rule:
        assert isinstance(decide(workspace, "bash", f"deny {rule}", mode="auto", sandboxed=True, command="python fix.py a.txt"), AskUser)


@every_case(
    ("command", "decision"),
    [
        ("python fix.py", AskUser),
        ("sed -i s/a/b/ src/*", AskUser),
        ("git stash", AskUser),
        ("make", AskUser),
        ("rm -rf src", AskUser),
        ("mv src other", AskUser),
        ("cp -r other/. .", AskUser),
        ("cp --target-directory=src other/a.py", AskUser),
        ("cp -tsrc other/a.py", AskUser),
        ("rm $X", AskUser),
        ("rm *", AskUser),
        ("cp b $(echo src/a.py)", AskUser),
        ("echo x > $X", AskUser),
        ("echo x > src/a.py", Deny),
        ("rm -rf secrets", Allow),
        ("mkdir -p src/x && touch src/b.py", Allow),
        ("echo x > src/b.py", Allow),
        ("cat src/a.py", Allow),
    ],
)
def test_what_may_change_a_file_that_must_not_be_changed_is_asked_about_in_auto(
    workspace: Workspace, command: str, decision: type[Decision]
) -> None:
    (workspace.root / "other").mkdir(exist_ok=True)
    decided = decide(workspace, "bash", "deny Edit(src/a.py)", mode="auto", sandboxed=True, command=command)
    assert isinstance(decided, decision)
    assert isinstance(decide(workspace, "bash", mode="auto", sandboxed=True, command=command), Allow)


@pytest.mark.parametrize(
    ("command", "decision"),
    [
        ("cp -r other/. later", AskUser),
        ("mv other later", AskUser),
        ("cp other/new.py later", AskUser),
        ("ln -sT other later", AskUser),
        ("cp -t later other/new.py", AskUser),
        ("cp other/new.py late", Allow),
        ("mkdir -p src/later", Allow),
    ],
)
def test_a_denied_file_that_is_not_there_yet_is_not_brought_with_a_folder(
    workspace: Workspace, command: str, decision: type[Decision]
) -> None:
    (workspace.root / "other").mkdir()
    for rule in ("Edit(later/new.py)", "Edit(/later/*.py)"):
        assert isinstance(decide(workspace, "bash", f"deny {rule}", mode="auto", sandboxed=True, command=command), decision)


@pytest.mark.parametrize(
    ("rule", "command", "decision"),
    [
        ("src/**", "cp -vtsrc other/x.sql", AskUser),
        ("src/**", "ln -stsrc other/x.sql", AskUser),
        ("src/**", "mktemp -qpsrc", AskUser),
        ("app/*/x.sql", "cp other/x.sql app/new", AskUser),
        ("app/*/x.sql", "mv other app/new", AskUser),
        ("*/x.sql", "cp -r other/deep/. later", AskUser),
        ("*/x.sql", "cp -- other/deep/x.sql later", AskUser),
        ("*/x.sql", "cp other/deep/x.sql later/y.sql", Allow),
        (".env", "cp -b -Sv other/new .en", AskUser),
        (".env", "mv --suffix=v --backup other/new .en", AskUser),
        ("src/**", "ln -s ../src other/l; cp b other/l/", AskUser),
        ("src/**", "ln -s ../src/a.py other/l; echo x > other/l", AskUser),
        ("src/**", "mv other/away away && touch away/x", AskUser),
        ("src/**", "ln -s other l 2> /dev/null", Allow),
        ("src/**", "mkdir -p new && cp -rf other/new new/ && touch new/x", Allow),
    ],
)
def test_a_file_that_a_rule_covers_comes_to_no_new_place_without_a_question(
    workspace: Workspace, rule: str, command: str, decision: type[Decision]
) -> None:
    for name in ("other/x.sql", "other/new", "other/deep/x.sql", "later/b", "app/new/b"):
        (workspace.root / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace.root / name).write_text("x\n")
    (workspace.root / "other" / "away").symlink_to("./src")
    assert isinstance(decide(workspace, "bash", f"deny Edit({rule})", mode="auto", sandboxed=True, command=command), decision)


@every_case(
    ("rule", "command", "covered"),
    [
        ("Bash(rm:*)", "rm -rf x", True),
        ("Bash(rm)", "rm -rf x", True),
        ("Bash(rm *)", "/bin/rm x", True),
        ("Bash(rm:*)", "rmdir x", False),
        ("Bash(rm*)", "rmdir x", True),
        ("Bash(git push)", "git -C . -c a=b --no-pager push origin", True),
        ("Bash(git push:*)", "git commit -m push", False),
        ("Bash(git * --force)", "git push origin --force", True),
        ("Bash(* --force*)", "git push --force-with-lease", True),
        ("Bash(npm run test:*)", "npm run test:unit", True),
        ("Bash(npm run test:*)", "npm --prefix x run test", True),
        ("Bash(timeout 5 make)", "timeout 5 make", True),
        ("Bash(bash:*)", "bash -c 'ls'", True),
        ("Bash(rm {-rf,-fr}:*)", "rm -fr x", True),
        ("shell(git push)", "git push", True),
        ('shell(["git", "push"])', "git push origin", True),
        ('prefix_rule(pattern=["git", ["push", "pull"]], decision="forbidden")', "git pull", True),
        ('prefix_rule(pattern=["git", ["push", "pull"]], decision="forbidden")', "git fetch", False),
        ("Bash(rm:*)", "busybox rm x", True),
        ("Bash(rm:*)", "coproc rm x", True),
        ("Bash(git: *)", "git push", True),
        ("Bash(git :*)", "git push", True),
        ("Bash(command:*)", "command ls", True),
    ],
)
def test_a_denial_for_commands_is_read_widely(workspace: Workspace, rule: str, command: str, covered: bool) -> None:
    assert isinstance(decide(workspace, "bash", f"deny {rule}", command=command), Deny) is covered


@every_case(
    ("rule", "tool", "arguments", "allowed"),
    [
        ("Edit(src/**)", "edit", {"path": "src/a.py", "old": "x", "new": "y"}, True),
        ("Edit(/src/**)", "edit", {"path": "src/a.py", "old": "x", "new": "y"}, True),
        ("Edit(//ROOT/src/**)", "edit", {"path": "src/a.py", "old": "x", "new": "y"}, True),
        ("Edit(*.py)", "edit", {"path": "src/a.py", "old": "x", "new": "y"}, False),
        ("Edit(SRC/**)", "edit", {"path": "src/a.py", "old": "x", "new": "y"}, False),
        ("Write(src/**)", "edit", {"path": "src/a.py", "old": "x", "new": "y"}, False),
        ("Write(src/**)", "write", {"path": "src/a.py", "content": ""}, True),
        ("Edit(link/**)", "write", {"path": "link/key", "content": ""}, False),
        ("Bash(npm run test:*)", "bash", {"command": "npm run test -x"}, True),
        ("Bash(npm run test:*)", "bash", {"command": "npm run test:unit"}, False),
        ("Bash(npm run *)", "bash", {"command": "npm run build"}, True),
        ("Bash(npm run *)", "bash", {"command": "npm run build -x"}, False),
        ("Bash(find . -name '*.py' -delete)", "bash", {"command": "find . -name 'a.py' -delete"}, False),
        ("WebFetch(domain:python.org)", "fetch", {"url": "https://python.org/"}, True),
        ("WebFetch(domain:python.org)", "fetch", {"url": "https://docs.python.org/"}, False),
    ],
)
def test_an_allowance_is_read_narrowly(workspace: Workspace, rule: str, tool: str, arguments: dict[str, Any], allowed: bool) -> None:
    assert isinstance(decide(workspace, tool, rule, **arguments), Allow if allowed else AskUser)


@pytest.mark.parametrize("url", ["https://evil.com", "https://www.evil.com/x", "https://evil.com:8443/"])
def test_a_denied_domain_covers_what_lies_below_it_on_every_port(workspace: Workspace, url: str) -> None:
    assert [
        type(decide(workspace, "fetch", f"deny {rule}", url=url)) for rule in ("WebFetch(domain:evil.com)", "WebFetch", "WebSearch")
    ] == [Deny] * 3


@pytest.mark.parametrize(
    ("rules", "path", "decision"),
    [
        (("deny Read(.env)", "Read(//ROOT/**)"), "sub/.env", Deny),
        (("deny Read(.env)", "Read(sub/**)"), "sub/.env", Deny),
        (("deny Read(*.pem)", "Read(*)"), "x.PEM", Deny),
        (("deny Read(.env)", "Read(sub/.env)"), "sub/.env", Allow),
        (("deny Read(.env)", "Read(sub/.env)"), ".env", Deny),
        (("deny Read(secrets/**)", "Read(secrets/key)"), "secrets/key", Allow),
    ],
)
def test_a_denial_yields_only_to_a_rule_that_names_the_file_or_lies_in_the_folder(
    workspace: Workspace, rules: tuple[str, ...], path: str, decision: type[Decision]
) -> None:
    assert isinstance(decide(workspace, "read", *rules, path=path), decision)


@every_case(
    ("text", "said"),
    [
        ("reed(.env)", "there is no tool reed; did you mean `read(.env)`?"),
        ("xyzzy", "there is no tool xyzzy; the tools are read, edit"),
        ("Print", "there is no tool Print; the tools are read, edit"),
        ("Cat(x)", "there is no tool Cat; the tools are read, edit"),
        ("Search(x)", "there is no tool Search; the tools are read, edit"),
        ("Editt(x)", "did you mean `edit(x)`?"),
        ("ExitPlanMode", "there is no tool like ExitPlanMode here"),
        ("Task(Explore)", "write `deny spawn_agent`"),
        ("mcp__a__b(x)", "write `deny mcp__a__b`"),
        ("read([a)", "a class is not closed"),
        ("read(x/[z-a])", "ends before it begins"),
        ("read(*/../x)", "`..` behind a wildcard matches nothing"),
        ("read(!x)", "cannot be negated"),
        ("read(.env,x)", "one rule has one pattern"),
        ("Read(.env) Read(x)", "one rule has one pattern"),
        ("Read(C:\\Users\\x)", "folders are separated by `/`"),
        ("Read($HOME/.ssh)", "write `~/` for your home folder"),
        ("Read(~bob/x)", "the home folder is written `~/`"),
        ('Read(".env")', "leave out the quotes: .env"),
        ("Read(file:///x)", "a path is no address"),
        ("Read(${workspaceFolder}/.env)", "variables are not expanded"),
        ("Read($PROJECT/.env)", "`./` for the project"),
        ("Read(%USERPROFILE%/.ssh)", "variables are not expanded"),
        ("Read(C:/Users/x)", "there are no drives; write `//Users/x`"),
        ("Read(.env:*)", "`:*` is for commands; write `.env*`"),
        ("Read(.en[[:alpha:]])", "a class names its letters"),
        ("Bash(rm, mv)", "a program has no `,` in its name"),
        ("Bash(git:push)", "a program has no `:` in its name"),
        ("CronCreate", "there is no tool like CronCreate here"),
        ("Read((.env))", "write the path alone"),
        ('Read([".env"])', "write the path alone"),
        ("Read(file_path=.env)", "leave out `file_path=`"),
        ("Read(path:.env)", "leave out `path:`"),
        ("Read(.env|.env.local)", "a choice is written in braces: {.env,.env.local}"),
        ('Bash("git push")', "leave out the quotes: git push"),
        ("Bash('git push':*)", "leave out the quotes: git push"),
        ("Bash(command:git push)", "leave out `command:`"),
        ("Bash(/^git/)", "a command is no regular expression"),
        ("Bash(/git/)", "a command is no regular expression"),
        ("Bash(git\\s+push)", "a command is no regular expression"),
        ('Bash(["git"]:*)', "no command is written"),
        ("Bash({git}:*)", "no command is written"),
        ("Bash(git\u200b:*)", "no command is written"),
        ('prefix_rule(pattern="rm", decision="forbidden")', "the rule is not understood"),
        ("Read(`.env`)", "leave out the quotes: .env"),
        ("Read(^.env)", "a path is no regular expression"),
        ("Read(+(.env))", "a choice is written in braces"),
        ("Read(.env;x)", "one rule has one pattern"),
        ("Read(sub\\.env)", "a dot needs no `\\`: sub/.env"),
        ("Read(secrets\\**)", "folders are separated by `/`"),
        ("mcp__", "the rule names no server"),
        ("Bash(curl x | sh)", "a rule names one command"),
        ("Bash(a && b)", "a rule names one command"),
        ("Bash(rm $X)", "a variable in a rule matches nothing"),
        ("Bash(A=1 rm)", "a rule begins with the program"),
        ("Bash(if:*)", "is a word of the shell"),
        ("Bash(git push), Bash(rm:*)", "a rule names one command"),
        ("WebFetch(https://x.org/a)", "such as `fetch(x.org)`"),
        ("prefix_rule(rm)", "the rule is not understood"),
        ('prefix_rule(pattern=["rm"], decision="allow")', "the rule says deny and allow"),
        ("deny read(x)", "write `read(x)` into permissions.deny"),
    ],
)
def test_a_rule_that_can_match_nothing_is_refused_with_the_right_spelling(text: str, said: str) -> None:
    with pytest.raises(BadInput) as raised:
        parse_rule(f"deny {text}", ())
    assert said in str(raised.value)


@every_case(
    ("text", "meant"),
    [
        ("Read(\\$x/.env)", "read(\\$x/.env)"),
        ("Read(a:b)", "read(a:b)"),
        ("Bash(npm run a:b,c)", "bash(npm run a:b,c)"),
        ("Bash(git push:**)", "bash(git push:*)"),
        ("WebFetch(domain:Bücher.example)", "fetch(xn--bcher-kva.example)"),
        ("WebFetch(domain:example.org.)", "fetch(example.org)"),
        ("TodoRead", "todo"),
        ("AgentOutputTool", "bash_output"),
        ("google_web_search", "fetch"),
        ("edit_file(a.txt)", "edit(a.txt)"),
        ("read_many_files(.env)", "read(.env)"),
    ],
)
def test_a_spelling_of_others_that_has_a_meaning_here_is_read(text: str, meant: str) -> None:
    assert str(parse_rule(f"deny {text}", ())) == f"deny {meant}"


def test_an_allowed_program_is_named_exactly() -> None:
    with pytest.raises(BadInput, match=r"write `bash\(npm:\*\)`"):
        parse_rule("Bash(npm*)")


@pytest.mark.parametrize("path", ["app/[id]/page.tsx", "app/(group)/b,c.tsx", "a*b {c}.txt", "a|b", "(a)"])
def test_the_rule_of_the_answer_always_allows_exactly_the_file(workspace: Workspace, path: str) -> None:
    asked = decide(workspace, "write", path=path, content="x")
    assert isinstance(asked, AskUser)
    assert decide(workspace, "write", asked.rule, path=path, content="x") == Allow(f"rule {asked.rule}")
    others = [decide(workspace, "write", asked.rule, path=other, content="x") for other in ("app/i/page.tsx", "app/x", "axb c.txt")]
    assert [type(other) for other in others] == [AskUser] * 3


OPAQUE = (
    *("coproc x", "trap 'rm a' EXIT", "alias x=rm; x a", "hash -p /bin/rm ls; ls a", "echo rm a | bash", "source <(echo rm a)", ". x.sh"),
    *(
        "env -S 'rm a'",
        "watch rm a",
        "unshare rm a",
        "chroot / rm a",
        "flock x rm a",
        "parallel rm ::: a",
        "su -c 'rm a'",
        "script -c 'rm a'",
    ),
    *(
        "f() { ls; }; f",
        "X=rm; $X a",
        "python -c 'x'",
        "perl -e x",
        "make",
        "./run.sh",
        "bash x.sh",
        "PATH=.:$PATH ls",
        "BASH_ENV=x bash -c ls",
    ),
    *(
        "cp /bin/rm x; ./x a",
        "$(echo rm) a",
        "git commit -m x",
        "npm test",
        "ssh host rm a",
        "tar xf a --to-command=rm",
        "exec {x}",
        "enable -f x rm",
    ),
)


@every_case("command", OPAQUE)
def test_what_may_start_other_programs_is_asked_about_in_auto_if_a_command_is_denied(workspace: Workspace, command: str) -> None:
    def decided(*rules: str) -> type[Decision]:
        return type(decide(workspace, "bash", *rules, mode="auto", sandboxed=True, command=command))

    assert decided() is Allow
    assert decided("deny bash(rm:*)") in (AskUser, Deny)
    assert decided("deny bash(mkfs:*)") is AskUser


@pytest.mark.parametrize(
    "command", ["ls -la", "mkdir x && touch x/a", "cp a b; mv b c", "echo x > a", "git status | head", "cd src && cat a.py"]
)
def test_what_is_understood_runs_in_auto_although_a_command_is_denied(workspace: Workspace, command: str) -> None:
    assert isinstance(decide(workspace, "bash", "deny bash(curl:*)", mode="auto", sandboxed=True, command=command), Allow)


ANY_GIT = ("bash(git:*)", "deny bash(git push:*)")
ANY_START = ("bash(xargs:*)", "bash(find:*)", "bash(env:*)", "deny bash(rm:*)")


@every_case(
    ("rules", "command", "decision"),
    [
        (ANY_GIT, "git $(echo push)", AskUser),
        (ANY_GIT, 'git "$X" origin', AskUser),
        (ANY_GIT, "git -C . $X", AskUser),
        (ANY_GIT, "git {push,origin}", AskUser),
        (ANY_GIT, "git pus?", AskUser),
        (ANY_GIT, "git [p]ush", AskUser),
        (("bash(git:*)", "ask bash(git push:*)"), "git `echo push`", AskUser),
        (("bash(rm:*)", "deny bash(rm -rf:*)"), "rm *", AskUser),
        (("deny bash(rm -rf:*)",), "rm $X a", AskUser),
        (ANY_START, "find . -exec $(echo rm) x ';'", AskUser),
        (ANY_START, "ls | xargs $(echo rm)", AskUser),
        (ANY_START, "echo rm | xargs -I% % a", AskUser),
        (ANY_START, "echo rm | xargs --replace {} a", AskUser),
        (ANY_START, "ls | xargs -n 1 -P 4 -d x rm", Deny),
        (ANY_START, "ls | xargs --max-p 4 rm", Deny),
        (ANY_START, "env -S 'rm a'", Deny),
        (ANY_START, "env --split-string='rm a'", Deny),
        (ANY_GIT, 'git commit -m "$MESSAGE"', Allow),
        (ANY_GIT, "git add src/*.py", Allow),
        (ANY_GIT, "git log --oneline $(git merge-base a b)..HEAD", Allow),
        (("bash(rm:*)", "deny bash(rm -rf:*)"), "rm a*.o", Allow),
        (ANY_START, "ls | xargs -n 1 grep -l x", Allow),
        (ANY_START, "find . -name a -exec grep x {} +", Allow),
        (("deny bash(* --force)",), 'echo "$HOME"', Allow),
        (("deny bash(git push)",), "ls src/*.py", Allow),
    ],
)
def test_a_word_that_only_the_shell_knows_may_be_what_a_rule_restricts(
    workspace: Workspace, rules: tuple[str, ...], command: str, decision: type[Decision]
) -> None:
    assert isinstance(decide(workspace, "bash", *rules, mode="auto", sandboxed=True, command=command), decision)


def test_the_question_names_the_rule_because_of_which_the_sandbox_is_not_enough(workspace: Workspace) -> None:
    decision = decide(workspace, "bash", "deny Bash(rm:*)", mode="auto", sandboxed=True, command="pytest -q")
    said = "it may start other programs, and the rule `deny bash(rm:*)` restricts some; `pytest` may change something"
    assert decision == AskUser(f"Run this command?\npytest -q\n({said})", "bash(pytest -q)")


def test_a_program_that_a_rule_allows_runs_in_auto_although_another_is_denied(workspace: Workspace) -> None:
    rules = ("deny bash(rm:*)", "bash(make:*)")
    assert isinstance(decide(workspace, "bash", *rules, mode="auto", sandboxed=True, command="make test"), Allow)


@every_case("command", ["grep -r KEY .*", "cat .*/x", "ls .[.]", "cat .?/x", "head sub/.*/../../x", "cat ..*/x", "cat .[!a]/x", "wc < .*"])
def test_a_pattern_that_older_shells_match_with_the_parent_is_asked_about(workspace: Workspace, command: str) -> None:
    assert isinstance(decide(workspace, "bash", command=command), AskUser)


@pytest.mark.parametrize(
    ("rules", "command"),
    [
        (("deny Read",), "cat src/a.py"),
        (("deny Read(.env)", "bash(find:*)"), "find . -type f -exec cat {} +"),
        (("deny Read(.env)", "bash(xargs:*)"), "ls | xargs cat"),
        (("deny Read(.env)", "bash(grep:*)"), "grep -R x ."),
        (("deny Read(.env)", "bash(sed:*)"), "sed 'r .env' src/a.py"),
        (("deny Read(.env)", "bash(cat:*)"), 'cat "$X"'),
        (("ask Read(.env)",), "grep -r x ."),
    ],
)
def test_an_allowed_reader_asks_if_it_may_show_a_denied_file(workspace: Workspace, rules: tuple[str, ...], command: str) -> None:
    (workspace.root / "loop").symlink_to("loop")
    assert isinstance(decide(workspace, "bash", *rules, command=command), AskUser)


@every_case(
    "command",
    [
        *("ls", "ls -la", "git status", "git diff", "git log --oneline", "cat src/a.py", "grep -n x src/*.py", "grep -rn x src"),
        *("grep -rn x . --include=*.py", "grep -rn --include='*.py' --include='*.ts' x", "grep -n .env src/a.py", "find . -name .env"),
        *(
            "git diff src/a.py",
            "git diff HEAD src/a.py",
            "git log -p -3 src/a.py",
            "git log -S x src/a.py",
            "rg --files",
            "rg --files -g '*.py' src",
        ),
        *("echo .env", "echo *", "wc -l ./*", "ls ./*"),
    ],
)
def test_ordinary_reading_runs_although_a_file_is_denied(repository: Workspace, command: str) -> None:
    (repository.root / "sub" / ".env").unlink(missing_ok=True)
    assert decide(repository, "bash", "deny Read(.env)", command=command) == Allow("read-only")


@every_case(
    "command",
    [
        *("shopt -s dotglob; cat ./*", "grep -rn x . --include='*'", "grep -rn x . --include=*.py --include=.e*"),
        *("grep -rn x . --exclude=a --include=*.py", "grep -rn x . --include='[!a]*'", "echo .env | xargs cat", "cat $(echo .env)"),
        *("git diff src", "git diff HEAD", "git diff main src/a.py", "git log -p main", "git log -p --follow src/a.py", "git diff .env"),
        *("git log -S API", "git log -SAPI --oneline", "git log -G 'API=[a-f]'", "git show --name-only -G x"),
        *("git diff HEAD .env src/a.py", "git show src/a.py", "rg x --files-with-matches .", "rg -e --files", "rg x -- --files ."),
        *("grep -v .e* src/a.py", "grep -v -e .e* src/a.py", "paste -d .e* src/a.py"),
    ],
)
def test_what_only_looks_like_ordinary_reading_does_not_run(repository: Workspace, command: str) -> None:
    rules = ("deny Read(.env)", "bash(shopt:*)", "bash(xargs:*)", "bash(cat:*)", "bash(grep:*)")
    assert not isinstance(decide(repository, "bash", *rules, command=command), Allow)


@pytest.mark.parametrize(
    "command", ["for x in *; do cat $x; done", "cat > a <<'X'\nx\nX", "grep -rn x .", "python -m pytest", "x=1; echo $x"]
)
def test_what_a_sandbox_hides_needs_no_question(workspace: Workspace, command: str) -> None:
    assert decide(workspace, "bash", "deny Read(.env)", mode="auto", sandboxed=True, command=command) == Allow("sandbox")


def test_a_tool_of_the_session_can_be_denied(workspace: Workspace) -> None:
    assert isinstance(decide(workspace, "kill", "deny KillShell", id="p1"), Deny)
    assert isinstance(decide(workspace, "kill", "deny read(.env)", id="p1"), Allow)
