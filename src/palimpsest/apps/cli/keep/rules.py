"""Finds permission rules of the configuration that cannot hold, for `pal config` and `pal doctor`."""

from palimpsest.core.errors import BadInput
from palimpsest.stores.config.settings import Settings
from palimpsest.tools.functions import installed_tools
from palimpsest.tools.permissions.rules import parse_rule

_RULE_KEYS = ("allow", "ask", "deny")
_LONGEST_RULE = 80


def rule_problems(settings: Settings) -> list[str]:
    """Return what is wrong with permission rules of the configuration: each cannot be read, names no tool or can match nothing."""
    rules = settings.config.permissions
    texts = [(key, text) for key in _RULE_KEYS for text in getattr(rules, key)]
    tools = [tool.name for tool in installed_tools().tools] if texts else []
    found: list[str] = []
    for key, text in texts:
        try:
            parse_rule(f"{key} {text}" if key != "allow" else text, tools)
        except BadInput as error:
            found.append(f"{settings.source(f'permissions.{key}')}: {error.message} (in permissions.{key}: {text[:_LONGEST_RULE]})")
    return found
