"""The files that a shell line reads, edits, writes and removes."""

from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.audit.commands import shell_file_accesses

DIFF = "--- a/x.c\n+++ b/x.c\n@@ -1 +1 @@\n-a\n+b\n"


def touches(line: str) -> str:
    """Each touch as a word: how, the path, and the lines if there are any."""
    return " ".join(
        f"{each.how}:{each.path}" + ("" if each.first is None and each.last is None else f":{each.first}-{each.last}")
        for each in shell_file_accesses(line)
    )


@every_case(
    ("line", "touched"),
    [
        ("mv a.py b.py", "remove:a.py write:b.py"),
        ("mv a.py src/", "remove:a.py write:src/a.py"),
        ("mv -f lib/a.py b.py src", "remove:lib/a.py remove:b.py write:src/a.py write:src/b.py"),
        ("mkdir -p src/new && mv a.py src/new", "remove:a.py write:src/new/a.py"),
        ("mv -t src a.py b.py", "remove:a.py remove:b.py write:src/a.py write:src/b.py"),
        ("mv lib/a.py .", "remove:lib/a.py write:a.py"),
        ("mv old/ new", "remove:old/ write:new"),
        ("cp a.py b.py", "write:b.py"),
        ("cp -r a.py lib ../out/", "write:../out/a.py write:../out/lib"),
        ("cp --target-directory=out a.py", "write:out/a.py"),
        ("cp a.py", ""),
        ("rm a.py", "remove:a.py"),
        ("rm -rf a.py build/ -- -x.py", "remove:a.py remove:build/"),
        ("rm *.pyc $f", ""),
        ("sudo rm /etc/a.conf", "remove:/etc/a.conf"),
        ("unlink a.py", "remove:a.py"),
        ("find . -name '*.pyc' | xargs rm", ""),
        ("install -m 644 a.conf /etc/a.conf", "write:/etc/a.conf"),
        ("install -d /etc/a && install a.conf /etc/a", "write:/etc/a/a.conf"),
        ("ln -sf ../a.py b.py", "write:b.py"),
        ("ln -s ../a.py", "write:a.py"),
        ("touch -d yesterday a.py b.py", "write:a.py write:b.py"),
        ("mkdir src", ""),
        ("truncate -s 0 a.log", "edit:a.log"),
        ("dd if=a.img of=b.img bs=1M", "write:b.img"),
        ("echo x | tee a.txt", "write:a.txt"),
        ("echo x | tee -a a.txt b.txt", "edit:a.txt edit:b.txt"),
        ("perl -pi -e 's/a/b/' a.py b.py", "edit:a.py edit:b.py"),
        ("perl -i.bak -pe 's/a/b/' a.py", "edit:a.py"),
        ("perl -0777 -i -pe 's/a/b/' a.py", "edit:a.py"),
        ("perl -Mstrict -ne 'print' a.py", ""),
        ("perl -i filter.pl a.py", "edit:a.py"),
        ("sed -i 's/a/b/' a.py", "edit:a.py"),
        ("sed -i '' -e 's/a/b/' a.py", "edit:a.py"),
        ("sed -i.bak -E 's/a/b/' a.py b.py", "edit:a.py edit:b.py"),
        ("sed --in-place=.bak 's/a/b/' a.py", "edit:a.py"),
        ("sed -ne '3,9p' a.py", "read:a.py:3-9"),
        ("git mv a.py src/", "remove:a.py write:src/a.py"),
        ("git -C web rm -f a.js", "remove:web/a.js"),
        ("git -C web rm /r/a.js", "remove:/r/a.js"),
        ("git rm --cached a.py", ""),
        ("git checkout -- a.py b.py", "edit:a.py edit:b.py"),
        ("git checkout HEAD~1 -- a.py", "edit:a.py"),
        ("git checkout main", ""),
        ("git restore --source=HEAD~1 a.py", "edit:a.py"),
        ("git restore --staged a.py", ""),
        ("git restore --staged --worktree a.py", "edit:a.py"),
        ("git log -- a.py", ""),
        ("patch a.c fix.patch", "edit:a.c"),
        ("patch -p1 < fix.patch", "read:fix.patch"),
        (f"patch -p1 <<'EOF'\n{DIFF}EOF", "edit:x.c"),
        ("cat > a.py <<'EOF'\nrm b.py\nEOF", "write:a.py"),
        ("echo x >> a.log 2> err.log", "edit:a.log write:err.log"),
        ("make &> out.log", "write:out.log"),
        ("make > /dev/null 2>&1", ""),
        ("dir /b 2>nul", ""),
        ("bash -c 'rm a.py && echo > b.py'", "remove:a.py write:b.py"),
        ("docker exec web rm a.py > log", "write:log"),
        ("if [ -f a.py ]; then rm a.py; fi", "remove:a.py"),
        ("cat -n a.py", "read:a.py"),
        ("nl -ba a.py | sed -n '1,20p'", "read:a.py"),
        ("head -20 a.py", "read:a.py:1-20"),
        ("tail -n +5 a.py", "read:a.py:0-0"),
        ("cat 'app/(shop)/page.tsx'", "read:app/(shop)/page.tsx"),
        ("Get-Content -Tail 5 a.log", "read:a.log"),
        ("cp notes.txt 'with space.txt'", ""),
    ],
)
def test_each_program_has_the_files_that_it_accesses(line: str, touched: str) -> None:
    assert touches(line) == touched


def test_a_patch_that_is_only_written_down_edits_nothing() -> None:
    patch = "*** Begin Patch\n*** Update File: q.py\n*** End Patch\n"
    assert touches(f"cat > fix.patch <<'EOF'\n{patch}EOF") == "write:fix.patch"
    assert touches(f"apply_patch <<'EOF'\n{patch}EOF") == "edit:q.py"
    assert touches(f"cd web && apply_patch '{patch}'") == "edit:q.py"


@given(
    st.lists(st.sampled_from(["mv", "cp", "rm", "git", "-t", "-C", "--", "perl", "-pi", "sed", "-i", "patch", "a.py", "ln", "dd", "tee"]))
)
def test_arguments_in_any_order_are_no_error(parts: list[str]) -> None:
    assert shell_file_accesses(" ".join(parts)) == shell_file_accesses(" ".join(parts))
