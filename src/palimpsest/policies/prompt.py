"""The prompts that ship with the package: one Markdown file each, with places for values."""

import pkgutil
from functools import cache

from palimpsest.core.errors import BadInput


@cache
def _text(name: str) -> str:
    data = pkgutil.get_data("palimpsest.policies", f"prompts/{name}.md")
    if data is None:
        raise BadInput(f"there is no prompt {name}")
    return data.decode().strip()


def prompt(name: str, **values: str) -> str:
    """The text of a prompt; `{{name}}` in it is the place of a value, and a line that holds only places without values is left out."""
    lines: list[str] = []
    for line in _text(name).split("\n"):
        filled = line
        for key, value in values.items():
            filled = filled.replace(f"{{{{{key}}}}}", value)
        if filled.strip() or not line.strip():
            lines.append(filled)
    return "\n".join(lines).strip()
