"""The profiles `gateway` and `gateway-thrifty`: clear what is dead in the conversation of another program, and leave folding to it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from palimpsest.profiles.palimpsest import THRIFT, with_numbers
from palimpsest.profiles.profile import Profile

# The output of a command or a search is dead once a call has passed that did not name it, so that it is cleared near the end of the
# conversation, where that breaks little of the cache. A file that was read lives as long as everywhere else, because it is often edited
# much later. Chosen by replaying public sessions of Claude Code behind a gateway, see docs/gateway.md.
_EAGER: Final = replace(THRIFT["balanced"], patience=0.0, reads=1.0)
_THRIFTY: Final = replace(THRIFT["thrifty"], patience=0.0, cover=0.3)


def gateway(environment: Mapping[str, str]) -> Profile:
    """Return the profile, which clears eagerly; the settings are those of `palimpsest`, of which `PAL_AUTO_COMPACT` is off by default."""
    return replace(with_numbers(_EAGER, environment, auto_compact="off"), name="gateway")


def gateway_thrifty(environment: Mapping[str, str]) -> Profile:
    """Return the profile that clears all that is dead without waiting, for the smallest bill."""
    return replace(with_numbers(_THRIFTY, environment, auto_compact="off"), name="gateway-thrifty")
