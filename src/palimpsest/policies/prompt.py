"""The prompts of the package: one Markdown file each, with placeholders."""

import pkgutil
from functools import cache

from palimpsest.core.errors import BadInput
from palimpsest.core.tokens.patterns import lazy_pattern

_PLACEHOLDER = lazy_pattern(r"\{\{(\w+)\}\}")


@cache
def _text(name: str) -> str:
    data = pkgutil.get_data("palimpsest.policies", f"prompts/{name}.md")
    if data is None:
        raise BadInput(f"there is no prompt {name}")
    return data.decode().strip()


def prompt(name: str, **values: str) -> str:
    """Return a prompt with its placeholders `{{name}}` replaced; lines with a placeholder without a value are left out.

    Raises `BadInput` if there is no prompt of that name.
    """
    lines: list[str] = []
    for line in _text(name).split("\n"):
        placeholders = _PLACEHOLDER.findall(line)
        if all(values.get(placeholder) for placeholder in placeholders):
            lines.append(_PLACEHOLDER.sub(lambda found: values[found[1]], line))
    return "\n".join(lines).strip()
