"""How much of a transcript a hook reads while its agent waits."""

from typing import Final

# Bytes, about 0.15 s of work. A shorter transcript is read whole.
HOOK_BYTES: Final = 3 * 1024 * 1024
