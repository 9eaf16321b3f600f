"""Makes mutants of the source, and says which of them the tests kill: so that a smaller or quicker suite can be held against an older one.

`./run python tests/support/mutants.py …` with one of these:
make        choose them, and others for those to which you gave a reason `left_out` in mutants.json
check       every mutant still has its place in the source
run [N…]    run tests against these mutants, or those without a result; `run all` runs all, first the test that killed each

A mutant is found by its function and the text of its statement, so it follows code that moves. The tests run on a copy of the tree.
"""

import ast
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(__file__).with_suffix(".json")
NUMBER, SEED, KINDS = 60, 31, ("comparison", "dropped", "swapped")
# Seconds for the tests of one mutant, and for a single test: one that takes longer hangs.
SECONDS, TEST_SECONDS = 180, 60
# Folders with the tests of a room, beside those of its own name.
FOLDERS = {
    "peers": {"profiles", "policies"},
    "policies": {"profiles"},
    "stores": {"undo_files"},
    "agent": {"engine"},
    "coding": {"tools", "coding_tasks"},
    "follow": {"mirror", "conversation"},
    "exchange": {"foreign"},
    **{room: {"lab", "try_out"} for room in ("replay", "pal_lab")},
}
PAIRS = ((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn))
OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {one: other for pair in PAIRS for one, other in (pair, pair[::-1])}


class Place(NamedTuple):
    """A simple statement in a function, or the condition of one: its text, and where it stands."""

    module: str
    function: str
    text: str
    node: ast.stmt | ast.expr

    @property
    def file(self) -> Path:
        return Path("src", *self.module.split(".")).with_suffix(".py")

    @property
    def room(self) -> str:
        return self.module.split(".")[0 if self.module.startswith("pal_lab.") else 1]


def _places() -> list[Place]:
    def visit(module: str, node: ast.AST, names: tuple[str, ...], *, inside: bool) -> Iterator[Place]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from visit(module, child, (*names, child.name), inside=not isinstance(child, ast.ClassDef))
                continue
            if inside and isinstance(child, ast.If | ast.While):
                yield Place(module, ".".join(names), f"{type(child).__name__.lower()} {ast.unparse(child.test)}", child.test)
            if isinstance(child, ast.stmt) and not any(isinstance(each, ast.stmt) for each in ast.walk(child) if each is not child):
                yield from [Place(module, ".".join(names), ast.unparse(child), child)] if inside else []
            elif not isinstance(child, ast.expr):
                yield from visit(module, child, names, inside=inside)

    files = {".".join(path.relative_to(ROOT / "src").with_suffix("").parts): path for path in sorted((ROOT / "src").rglob("*.py"))}
    return [place for module, path in files.items() for place in visit(module, ast.parse(path.read_bytes()), (), inside=False)]


def _mutations(place: Place) -> Iterator[tuple[str, str]]:
    """Kind and text of each mutant of a statement."""
    node = place.node
    word = place.text.partition(" ")[0] + " " if isinstance(node, ast.expr) else ""
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    is_stored = isinstance(node, ast.Assign) and all(isinstance(each, ast.Attribute | ast.Subscript) for each in node.targets)
    if is_call or is_stored or isinstance(node, ast.AugAssign | ast.Continue):
        yield "dropped", "pass"
    for inner in ast.walk(node):
        if isinstance(inner, ast.Compare) and len(inner.ops) == 1 and (was := type(inner.ops[0])) in OPPOSITE:
            inner.ops[0] = OPPOSITE[was]()
            yield "comparison", word + ast.unparse(node)
            inner.ops[0] = was()
        # Other arguments mostly have other types, so that every test of the function fails; these of `isinstance` and `max` say nothing.
        names = [each for each in inner.args[:2] if isinstance(each, ast.Name | ast.Attribute)] if isinstance(inner, ast.Call) else []
        if isinstance(inner, ast.Call) and len(names) == 2 and ast.unparse(inner.func) not in {"isinstance", "map", "max", "min"}:
            inner.args[:2] = reversed(names)
            yield "swapped", word + ast.unparse(node)
            inner.args[:2] = names


def _slots(places: list[Place]) -> list[tuple[str, str]]:
    """Room and kind of each mutant: in each room as many as its size asks for, of each kind in turn."""
    shares = {room: NUMBER * size / len(places) for room, size in Counter(place.room for place in places).items()}
    counts = {room: int(share) for room, share in shares.items()}
    for room in sorted(shares, key=lambda room: counts[room] - shares[room])[: NUMBER - sum(counts.values())]:
        counts[room] += 1
    return [(room, KINDS[(turn + len(room)) % 3]) for room in sorted(counts) for turn in range(counts[room])]


def _make(places: list[Place]) -> None:
    """Choose mutants, never two in one function; those that have a reason `left_out` are replaced by others of their room and kind."""
    data = json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else {"mutants": [], "left_out": []}
    known, often = data["mutants"], Counter((place.function, place.text) for place in places)
    slots = [(Place(each["module"], "", "", ast.Pass()).room, each["kind"]) for each in known] or _slots(places)
    data["left_out"] += [each for each in known if "left_out" in each]
    taken, every = {each["function"] for each in (*known, *data["left_out"])}, {}
    for number, (room, wanted) in enumerate(slots):
        if number < len(known) and "left_out" not in known[number]:
            continue
        if room not in every:
            every[room] = [(place, *mutation) for place in places if place.room == room for mutation in _mutations(place)]
            random.Random(f"{SEED} {room}").shuffle(every[room])
        free = [each for each in every[room] if each[0].function not in taken and often[each[0].function, each[0].text] == 1]
        place, kind, after = next((each for each in free if each[1] == wanted), free[0])
        taken.add(place.function)
        row = {"module": place.module, "function": place.function, "kind": kind, "before": place.text, "after": after}
        known[number : number + 1] = [row]
    DATA.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _find(mutant: dict[str, Any], places: list[Place]) -> Place | None:
    """The only place of a mutant's statement: in its module, else wherever a function of this name has it."""
    found = [place for place in places if (place.function, place.text) == (mutant["function"], mutant["before"])]
    here = [place for place in found if place.module == mutant["module"]] or found
    return here[0] if len(here) == 1 else None


class Copy:
    """A copy of the tree with a Python of its own, in which one statement at a time is another one."""

    def __init__(self, folder: Path) -> None:
        self.root, self.mark, self.python = folder / "tree", folder / "t" / "reached", folder / "python" / "bin" / "python"
        self.mark.parent.mkdir()
        listed = subprocess.run(("git", "ls-files", "-z"), cwd=ROOT, capture_output=True, check=True).stdout
        for name in (os.fsdecode(each) for each in listed.split(b"\0") if each and (ROOT / os.fsdecode(each)).is_file()):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self.root / name)
        subprocess.run((sys.executable, "-m", "venv", "--without-pip", folder / "python"), check=True)
        (packages,) = (folder / "python" / "lib").glob("python*/site-packages")
        # The packages of this Python, without the checkout that is installed there: such files are not followed from here.
        theirs = next(path for path in sys.path if path.endswith("site-packages"))
        (packages / "tree.pth").write_text(f"{self.root / 'src'}\n{theirs}\n")
        script = self.python.parent / "pal"
        script.write_text(f"#!{self.python}\nimport sys\nfrom pal.cli.start import main\nsys.exit(main())\n")
        script.chmod(0o755)

    def write(self, place: Place, text: str) -> None:
        """Put a text in the place of a statement. When it is reached, it leaves a mark; without a text all is as it was."""
        data, node = (ROOT / place.file).read_bytes(), place.node
        if text:
            end, column = node.end_lineno or 0, node.end_col_offset or 0
            lines, touch = data.splitlines(keepends=True), f"__import__('pathlib').Path({str(self.mark)!r}).touch()"
            head, tail = lines[node.lineno - 1][: node.col_offset], lines[end - 1][column:]
            new = f"({touch}, {text.partition(' ')[2]})[1]" if isinstance(node, ast.expr) else f"{touch}; {text}"
            data = b"".join([*lines[: node.lineno - 1], head + new.encode() + tail, *lines[end:]])
        (self.root / place.file).write_bytes(data)
        # Python knows a file by its second and its size, which may both be as before.
        for compiled in (self.root / place.file.parent).glob(f"__pycache__/{place.file.stem}.*"):
            compiled.unlink()

    def failing(self, tests: list[str], seconds: float) -> str | None:
        """The first test that fails or hangs, empty if none does; `None` if there was no time for all of them."""
        options = ["-x", "-n", "0", "-vv", "--no-header", "--tb=no", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
        options += ["-o", f"faulthandler_timeout={TEST_SECONDS}", "-o", "faulthandler_exit_on_timeout=true"]
        with tempfile.TemporaryFile("w+") as out:
            command = (str(self.python), "-m", "pytest", *options, *tests)
            here = {**os.environ, "TMPDIR": str(self.mark.parent)}
            run = subprocess.Popen(command, cwd=self.root, env=here, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                code = run.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()
                return None
            out.seek(0)
            text = out.read()
        # A name without its parameters, which may have spaces; where all ends in the middle of a test, the last line says in which.
        failed = re.findall(r"^(?:FAILED|ERROR) ([^\s[]+)", text, re.MULTILINE) or re.findall(r"^(tests/[^\s[]+)", text, re.MULTILINE)
        return "" if code in {0, 5} else failed[-1] if failed else f"exit code {code}"


def _tests(place: Place) -> list[str]:
    """The files of tests that may reach a place: first those that name its function, its class, its module or its room."""
    folders = FOLDERS.get(place.room, set()) | {place.room}
    names, found = place.function.split("."), []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text, here = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
        points = 8 * (f"{place.module} import" in text) + sum(5 for name in names if re.search(rf"\b{name.strip('_')}\b", text))
        points += 5 * bool(folders & set(path.parent.parts)) + 3 * any(name in path.stem for name in (place.file.stem, *names))
        found += [(-points, here)] if points > 4 and not here.startswith(("tests/live/", "tests/real/")) else []
    return [here for _, here in sorted(found)]


def _run(copy: Copy, mutant: dict[str, Any], place: Place) -> None:
    """Run tests against a mutant, first the one that killed it, wherever that stands today, and keep what became of it."""
    tests, until, name = _tests(place), time.monotonic() + SECONDS, mutant.get("killed_by", "").partition("::")[2]
    written = f"def {name.rpartition('::')[2]}("
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if written in path.read_text(encoding="utf-8")]
    waiting = [[f"{path.relative_to(ROOT)}::{name}" for path in files], tests[:6], tests[6:]]
    killer: str | None = ""
    copy.mark.unlink(missing_ok=True)
    while killer == "" and waiting:
        some = waiting.pop(0)
        copy.write(place, mutant["after"])
        killer = copy.failing(some, max(1, until - time.monotonic())) if some else ""
        copy.write(place, mutant["before"])
        if killer and copy.failing([killer], SECONDS) != "":
            # It fails without the mutant too; the files after it may say more.
            waiting.insert(0, some[some.index(file) + 1 :] if (file := killer.partition("::")[0]) in some else [])
            killer = ""
    copy.write(place, "")
    for field in ("killed_by", "survived"):
        mutant.pop(field, None)
    reached = "reached" if copy.mark.exists() else "not reached"
    mutant |= {"killed_by": killer} if killer else {"survived": f"{reached}, {len(tests)} files{' not all' if killer is None else ''}"}


def main(command: str, *which: str) -> None:
    places = _places()
    if command == "make":
        _make(places)
    mutants: list[dict[str, Any]] = (data := json.loads(DATA.read_text(encoding="utf-8")))["mutants"]
    found = {number: place for number, mutant in enumerate(mutants) if (place := _find(mutant, places))}
    lost = [f"{number}: no single place for {mutant}\n" for number, mutant in enumerate(mutants) if number not in found]
    if command == "run":
        new = [str(number) for number, mutant in enumerate(mutants) if which or not {"killed_by", "survived"} & set(mutant)]
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            copy = Copy(Path(folder))
            for number in (int(each) for each in (which if which and which != ("all",) else new) if int(each) in found):
                _run(copy, mutants[number], found[number])
                DATA.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
                print(number, found[number].module, found[number].function, mutants[number].get("killed_by", "survived"), flush=True)
    print(f"{''.join(lost)}{len(mutants)} mutants, {sum('killed_by' in each for each in mutants)} killed")
    sys.exit(bool(lost))


if __name__ == "__main__":
    main(*sys.argv[1:])
