"""Builds the documentation as a site of static pages without scripts: `python site.py FOLDER`."""

import html
import re
import runpy
import shutil
import sys
from contextlib import redirect_stdout
from io import StringIO
from itertools import pairwise
from pathlib import Path
from posixpath import normpath, relpath

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
PAGES: dict[str, tuple[str, ...]] = {
    "Start": ("README.md", "README.zh-CN.md", "GLOSSARY.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
    "Use": (
        *("agent", "editors", "inside", "memory", "mcp", "subagents", "hooks", "jobs", "undo-files", "configuration", "exchange", "replay"),
        *("report", "profiles", "fold", "json", "loops", "gateway"),
    ),
    "Build on it": ("adding", "api", "architecture", "format", "tour", "benchmark", "memory-evaluation"),
}
# Pages that are no files: programs print them from the docstrings of the source.
PRINTED = {"docs/tour.md": "tour.py", "docs/api.md": "api.py"}
_STYLE = """body{margin:0;display:grid;grid-template-columns:15rem minmax(0,1fr);
font:16px/1.6 system-ui,sans-serif;color:#1d2126;background:#fff}
nav{padding:1.5rem;background:#f5f6f7;min-height:100vh;box-sizing:border-box}nav p{font-weight:600;margin:1rem 0 .2rem}nav a{display:block}
nav a[aria-current]{font-weight:600;color:inherit;text-decoration:none}main{padding:1rem 2rem 4rem;max-width:60rem;min-width:0}
a{color:#0b57a4}img{max-width:100%}pre{background:#f5f6f7;padding:.8rem;overflow:auto}code{font:14px/1.5 ui-monospace,monospace}
table{border-collapse:collapse;display:block;overflow:auto}td,th{border:1px solid #d5d8dc;padding:.3rem .6rem;text-align:left}
@media(max-width:50rem){body{display:block}nav{min-height:0}main{padding:1rem}}
@media(prefers-color-scheme:dark){body{color:#e3e5e8;background:#16181b}nav,pre{background:#202327}a{color:#7db7f0}td,th{border-color:#3a3f45}}"""


class BrokenLink(Exception):
    """A page links to something that is not in the repository."""


def sources() -> dict[str, str]:
    """The address of each page in the site by its path in the repository."""
    paths = [name if name.endswith(".md") else f"docs/{name}.md" for names in PAGES.values() for name in names]
    return {path: "index.html" if path == "README.md" else f"{path.removesuffix('.md')}.html" for path in paths}


def build(folder: Path) -> int:
    """Write all pages and the files that they link to, and return the number of pages. Raises `BrokenLink`."""
    pages = sources()
    for path, address in pages.items():
        place = folder / address
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(_page(path, pages, folder), encoding="utf-8")
    return len(pages)


def anchor_of(title: str) -> str:
    """The anchor of a heading, as hosting sites for repositories make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")


def _page(path: str, pages: dict[str, str], folder: Path) -> str:
    renderer = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    tokens = renderer.parse(_text_of(path))
    title = _add_anchors(tokens)
    for token in tokens:
        for part in token.children or ():
            for name in ("href", "src"):
                target = part.attrs.get(name)
                if isinstance(target, str):
                    part.attrs[name] = _target(target, path, pages, folder)
    body = renderer.renderer.render(tokens, renderer.options, {})
    language = "zh-CN" if ".zh-CN." in path else "en"
    return (
        f'<!doctype html>\n<html lang="{language}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n'
        f"<body>\n<nav>{_navigation(path, pages)}</nav>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )


def _text_of(path: str) -> str:
    if path not in PRINTED:
        return (ROOT / path).read_text(encoding="utf-8")
    printed = StringIO()
    with redirect_stdout(printed):
        runpy.run_path(str(ROOT / "tests" / "support" / PRINTED[path]), run_name="__main__")
    return printed.getvalue()


def _add_anchors(tokens: list[Token]) -> str:
    """Give each heading its anchor, a number where two are the same, and return the title of the page."""
    seen: dict[str, int] = {}
    titles: list[str] = []
    for token, inline in pairwise(tokens):
        if token.type == "heading_open":
            text = "".join(part.content for part in inline.children or ())
            anchor = anchor_of(text)
            number = seen[anchor] = seen.get(anchor, -1) + 1
            token.attrs["id"] = f"{anchor}-{number}" if number else anchor
            titles.append(text)
    return titles[0] if titles else "Palimpsest"


def _target(link: str, path: str, pages: dict[str, str], folder: Path) -> str:
    """Where a link of a page leads in the site; a file that is no page is copied, a folder is left to the repository."""
    if re.match(r"[a-z]+:", link) or link.startswith("#"):
        return link
    target, hash_sign, anchor = link.partition("#")
    found = normpath(f"{Path(path).parent.as_posix()}/{target}")
    if (found not in pages and not (ROOT / found).exists()) or found.startswith(".."):
        raise BrokenLink(f"{path} links to {link}")
    here = Path(pages[path]).parent.as_posix()
    if found not in pages and (ROOT / found).is_file():
        (folder / found).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / found, folder / found)
    elif found not in pages:
        (folder / found).mkdir(parents=True, exist_ok=True)
        for each in sorted((ROOT / found).glob("*.py")):
            shutil.copyfile(each, folder / found / each.name)
    return relpath(pages.get(found, found), here) + hash_sign + anchor


def _navigation(path: str, pages: dict[str, str]) -> str:
    here = Path(pages[path]).parent.as_posix()
    lines: list[str] = []
    for title, names in PAGES.items():
        lines.append(f"<p>{title}</p>")
        for name in names:
            source = name if name.endswith(".md") else f"docs/{name}.md"
            shown = {"README.md": "Palimpsest", "README.zh-CN.md": "简体中文"}.get(name, name.removesuffix(".md").replace("-", " ").lower())
            current = ' aria-current="page"' if source == path else ""
            lines.append(f'<a href="{relpath(pages[source], here)}"{current}>{shown}</a>')
    return "\n".join(lines)


if __name__ == "__main__":
    print(f"{build(Path(sys.argv[1]))} pages in {sys.argv[1]}")
