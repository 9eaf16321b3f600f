"""The prompts that ship with the package: one Markdown file each, with places for values."""

import pkgutil
import re
from functools import cache

from palimpsest.core.errors import BadInput

_PLACE = re.compile(r"\{\{(\w+)\}\}")


@cache
def _text(name: str) -> str:
    data = pkgutil.get_data("palimpsest.policies", f"prompts/{name}.md")
    if data is None:
        raise BadInput(f"there is no prompt {name}")
    return data.decode().strip()


def prompt(name: str, **values: str) -> str:
    """The text of a prompt; `{{name}}` in it is the place of a value, and a line with a place for which there is none is left out."""
    lines: list[str] = []
    for line in _text(name).split("\n"):
        places = _PLACE.findall(line)
        if all(values.get(place) for place in places):
            lines.append(_PLACE.sub(lambda found: values[found[1]], line))
    return "\n".join(lines).strip()
