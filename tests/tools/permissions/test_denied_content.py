"""What a denial covers never appears in a result without a question: random trees, rules and commands, run for real."""

import asyncio
import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec import structs

from palimpsest.agent.decision import Allow, Mode
from palimpsest.agent.shell import Shell
from palimpsest.agent.tool import AgentTool
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.permissions import Permissions
from palimpsest.coding.rules import parse_rule
from palimpsest.coding.tools.read import read_tool
from palimpsest.coding.tools.sandbox import Area, find_sandbox
from palimpsest.coding.tools.search import glob_tool, grep_tool
from palimpsest.core.items import ToolCall

NAMES = (".env", ".env.local", "key.pem", "a.py", "notes.txt", "Secret.TXT", "data", "b c.txt")
FOLDERS = ("", "sub", "sub/deep", "secrets", ".hidden", "src", "app/[id]")
MODES: tuple[Mode, ...] = ("ask", "plan", "auto")


@dataclass
class Tree:
    """A project; `tokens` are the texts in its files, by every path that ever held them."""

    root: Path
    tokens: dict[str, set[str]] = field(default_factory=dict)
    links: list[str] = field(default_factory=list)

    def write(self, name: str, token: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"API_KEY={token}\nsecond line\n")
        self.tokens.setdefault(token, set()).add(name)

    def git(self, *words: str) -> None:
        settings = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        subprocess.run(["git", "-C", self.root, *settings, *words], check=True, capture_output=True)


def planted(chance: random.Random, root: Path) -> Tree:
    """A tree with hidden files, both kinds of links, and a history that has files that are gone."""
    tree = Tree(root)
    root.mkdir()
    tree.git("init", "-q")
    paths = [f"{folder}/{name}".lstrip("/") for folder in FOLDERS for name in chance.sample(NAMES, 3)]
    for number, path in enumerate(paths):
        tree.write(path, f"OLD{number:03}old")
    tree.git("add", "-A", "-f")
    tree.git("commit", "-qm", "first")
    gone, kept, changed = chance.sample(paths, 3), paths[::2], paths[1::2]
    for number, path in enumerate(changed):
        tree.write(path, f"NEW{number:03}new")
    for path in gone:
        (root / path).unlink()
    tree.git("add", "-A", "-f")
    tree.git("commit", "-qm", "second")
    present = [path for path in (*kept, *changed) if path not in gone]
    tree.write(chance.choice(present), "WORK000work")
    for number, path in enumerate(chance.sample(present, 4)):
        (root / f"link{number}").symlink_to(os.path.relpath(root / path, root))
        os.link(root / path, root / f"hard{number}.txt")
        token = next(token for token in tree.tokens if token in (root / path).read_text())
        tree.tokens[token].add(f"hard{number}.txt")
        tree.links += [f"link{number}", f"hard{number}.txt"]
    (root / "linked").symlink_to("secrets")
    return tree


Covers = Callable[[str], bool]


def rule_of(chance: random.Random, tree: Tree) -> tuple[str, Covers]:
    """A rule in some spelling, and what it covers, told by plain texts and not by our patterns."""
    name, folder = chance.choice(NAMES), chance.choice(FOLDERS[1:])
    path = chance.choice([each for names in tree.tokens.values() for each in names])
    escaped = path.replace("[", "\\[").replace("]", "\\]")

    def same(each: str) -> bool:
        return each.casefold() == path.casefold()

    def named(each: str) -> bool:
        return name.casefold() in each.casefold().split("/")

    def inside(each: str) -> bool:
        return each.casefold().startswith(f"{folder}/")

    bracketed = f"{name[:1]}[{name[1]}]{name[2:]}"
    return chance.choice(
        [
            (f"Read({name})", named),
            (f"read({name.upper()})", named),
            (f"Read(**/{name})", named),
            (f"read({bracketed})", named),
            (f"Read(./{escaped})", same),
            (f"read(/{escaped})", same),
            (f"Read(/{tree.root}/{escaped})", same),
            (f"read({tree.root}/{escaped})", same),
            (f"Read(sub/../{escaped})", same),
            (f"Read({folder}/**)", inside),
            (f"Read(./{folder}/)", inside),
            (f"read({folder}/*)", inside),
            ("Read(*.{pem,txt})", lambda each: each.casefold().endswith((".pem", ".txt"))),
            ("Read(.env*)", lambda each: any(part.casefold().startswith(".env") for part in each.split("/"))),
        ]
    )


def spelled(chance: random.Random, tree: Tree) -> str:
    """A word that names something in the tree."""
    path = chance.choice([*(each for names in tree.tokens.values() for each in names), *tree.links, *filter(None, FOLDERS), "linked", "."])
    folder, _, name = path.rpartition("/")
    quoted = "'" + path + "'"
    plain = folder.replace("[id]", "?id?") or "."
    words = (quoted, quoted, f"./{quoted}", f"sub/../{quoted}", f"'{tree.root}/{path}'", f'"$PWD/{path}"', f"{plain}/*", f"{plain}/.*")
    bare = path.replace(" ", "\\ ").replace("[", "\\[")
    globs = "* .* .[!.]* */* .e?v {.env,a.py} linked/* linked hard* link? . sub s* ~/x"
    return chance.choice((*words, *globs.split(), f"{quoted} a.py", bare, f"{name[:2]}*"))


# W is a word that names something, % the path of a file.
READERS = r"""
cat W
cat W W
head -n 3 W
tail -c 40 W
sed -n '1,5p' W
sed -n 'r %' a.py
sed 's/a/b/' W
sort W
sort --files0-from=W
uniq W
cut -c 1-40 W
nl W
tac W
rev W
paste W W
comm W W
diff W W
diff -r W W
diff sub W
grep API W
grep -r API W
grep -rn . W
grep -R API W
grep -r API
grep -f% -r .
/bin/grep -r API .
egrep -rh KEY . --include='*'
rg API
rg API W
rg -uu API W
rg --hidden --no-ignore . W
rg -uu API -- --files W
wc -l W
ls -la W
ls -R
find . -type f
find W -type f -print
find . -exec cat {} +
find . -type f | xargs cat
tree -a
stat W
strings W
xxd W
awk 1 W
tar cf - W
python3 -c 'print(open(".env").read())'
git diff
git diff HEAD~1
git diff --cached
git diff --stat
git diff -- W
git diff HEAD~1 -- W
git -C . diff HEAD~1
git log
git log -p
git log --stat
git log -p -- W
git log -p --follow -- W
git log -S API -p
git log -L 1,2:%
git show
git show HEAD~1
git show --stat
git show HEAD:%
git show HEAD~1:%
git show :%
git show HEAD:./%
git show :/first
git show 'HEAD@{0}'
git show 'HEAD@{2099-01-01 00:00:00}'
git show $(git rev-parse HEAD:%)
git cat-file -p HEAD:%
git cat-file -t HEAD:%
git cat-file -p HEAD~1:%
git grep API
git grep API HEAD~1
git grep -h . -- W
git blame W
git blame HEAD~1 -- %
git blame % HEAD~1
git status -v
git status
git ls-files -s
git stash list
git stash show -p
git archive HEAD
git format-patch --stdout HEAD~1
cat < W
echo $(< W)
echo "$(cat W)"
cat <(cat W)
cat <<< "$(cat W)"
while read -r x; do echo $x; done < W
for x in W; do cat "$x"; done
x=%; cat "$x"
eval 'cat *'
dd if=% status=none
perl -pe 1 W
python3 -c 'import os; [print(open(os.path.join(a, n)).read()) for a, _, b in os.walk(".") for n in b]'
""".strip().splitlines()
# Readers that the user allowed with any arguments: what they are known to show is judged all the same.
ALLOWED = ((), (), ("bash(cat:*)", "bash(head:*)"), ("bash(grep:*)", "bash(rg:*)"), ("bash(git:*)",), ("bash(diff:*)", "bash(sed:*)"))
FRAMES = """
X
X
X
X | cat
X; Y
X && Y
X || Y
cd sub && X
cd secrets; X
cd sub; cd ..; X
(X)
{ X; }
timeout 5 X
env LC_ALL=C X
if X; then Y; fi
command X
! X
X 2>&1
LC_ALL=C X
""".strip().splitlines()


def command_of(chance: random.Random, tree: Tree) -> str:
    """A command of the grammar."""

    def reader() -> str:
        text = chance.choice(READERS)
        while "W" in text.replace("PWD", ""):
            head, _, rest = text.partition("W")
            text = head + spelled(chance, tree).replace("W", "\0") + rest
        path = chance.choice([each for names in tree.tokens.values() for each in names])
        # In quotes already in a script of `sed`.
        return text.replace("\0", "W").replace("r %'", f"r {path}'").replace("%", f"'{path}'")

    return chance.choice(FRAMES).replace("X", reader()).replace("Y", reader())


def leaked(tree: Tree, covers: Covers, output: str) -> list[str]:
    covered = [token for token, names in tree.tokens.items() if any(map(covers, names))]
    return [token for token in covered if token in output or token[::-1] in output]


def tool_results(tree: Tree, permissions: Permissions, chance: random.Random) -> list[tuple[str, str]]:
    """What the tools that read and search return where they run without a question."""

    def result(tool: AgentTool, **arguments: str) -> str:
        text = json.dumps(arguments)
        if not isinstance(permissions.decide(tool, ToolCall("c", tool.name, text), sandboxed=False), Allow):
            return ""
        found = asyncio.run(tool.run(text, permissions.workspace)).text
        return permissions.without_restricted(tool, found) if tool.name != "read" else found

    paths = [*(each for names in tree.tokens.values() for each in names), *tree.links]
    reads = [(path, result(read_tool(), path=path)) for path in chance.sample(paths, 8)]
    listed = result(glob_tool(), pattern="**/*")
    return [*reads, ("grep", result(grep_tool(), pattern="API")), ("glob", listed)]


def check(tmp_path: Path, seed: int, commands: int) -> int:
    """Try one tree, every second without its repository, whose copies keep most commands from running; returns how many commands ran."""
    chance = random.Random(seed)
    tree = planted(chance, (tmp_path / f"tree{seed}").resolve())
    if seed % 2:
        shutil.rmtree(tree.root / ".git")
    # Commands see the tree and cannot change it, since the next rule is tried in the same.
    (tmp_path / f"empty{seed}").mkdir()
    area = Area.of(Workspace(tmp_path / f"empty{seed}"), shown=(tree.root,))
    sandbox = find_sandbox(area)
    ran = 0
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
    for _ in range(max(1, commands // 25)):
        text, covers = rule_of(chance, tree)
        allowed = tuple(map(parse_rule, chance.choice(ALLOWED)))
        permissions = [Permissions(mode, Workspace(tree.root), (parse_rule(f"deny {text}"), *allowed), home=tmp_path) for mode in MODES]
        for source, output in tool_results(tree, permissions[0], chance):
            assert leaked(tree, covers, output) == [], f"seed {seed}: deny {text}: {source}"
            assert source != "glob" or not any(map(covers, output.split("\n"))), f"seed {seed}: deny {text}: {output}"
        for _ in range(25):
            line = command_of(chance, tree)
            call, bash = ToolCall("c", "bash", json.dumps({"command": line})), Shell(tree.root).tools()[0]
            shell: tuple[str, ...] = ("bash", "-c", line)
            if not any(isinstance(each.decide(bash, call, sandboxed=False), Allow) for each in permissions):
                if permissions[-1].decide(bash, call, sandboxed=sandbox.replaces_questions) != Allow("sandbox"):
                    continue
                shell = sandbox.wrap(structs.replace(area, hidden=permissions[-1].hidden().files))(shell)
            done = subprocess.run(
                shell, cwd=tree.root, capture_output=True, env=environment, timeout=120, stdin=subprocess.DEVNULL, check=False
            )
            ran += 1
            output = (done.stdout + done.stderr).decode(errors="replace")
            assert leaked(tree, covers, output) == [], f"seed {seed}: deny {text}: {line}"
    shutil.rmtree(tree.root)
    area.remove()
    return ran


@pytest.mark.machine
@pytest.mark.parametrize(("trees", "commands"), [(2, 75), pytest.param(40, 500, marks=pytest.mark.long)])
def test_what_a_denial_covers_appears_in_no_result_without_a_question(tmp_path: Path, trees: int, commands: int) -> None:
    first = 0 if trees == 2 else random.SystemRandom().randrange(10**6)
    assert sum(check(tmp_path, first + seed, commands) for seed in range(trees)) > commands // 5
