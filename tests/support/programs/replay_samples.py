"""What a replay might have found, made up: sawtooths of context with folds, masks and re-reads, whose every number follows from a few."""

from pal.replay.outcome import (
    BilledCall,
    CardRun,
    Comparison,
    EditKind,
    HiddenEvent,
    Outcome,
    ProbeScores,
    Purpose,
    ReplayedEdit,
    ReplayedSession,
    Reread,
    SurvivalShares,
    WindowShare,
)
from palimpsest.core.events import Usage
from palimpsest.core.items import Loss
from palimpsest.wire.models import card, simulated_cost

CARD = "claude-sonnet-4-5"
BEGAN = 1_932_800_400_000
LAW = {"palimpsest": (90_000, 20_000, 25), "claude-code": (167_000, 30_000, 0), "codex": (180_000, 12_000, 0), "none": (10**9, 0, 0)}
"""When a profile folds, to how many tokens, and after how many calls it masks."""


def outcome(name: str, calls: int = 120, *, grows: int = 3_000) -> Outcome:
    """One profile on a session whose context grows by as much at every call."""
    fold_at, left, mask_every = LAW[name]
    size, cached = 12_000, 0
    called: list[BilledCall] = []
    edits: list[ReplayedEdit] = []
    rereads: list[Reread] = []
    for step in range(calls):
        at = BEGAN + step * 20_000 + (step // 40) * 900_000
        size += grows
        kept = size
        if size > fold_at:
            kept = left
            survival = SurvivalShares(1.0, 0.9, 0.5 / (len(edits) + 1), 0.4, 0.3)
            edits.append(_edited((step, at), "fold", name, (size, kept), survival))
            if name != "palimpsest":
                called.append(_called((step, at), "summary", size, cached, 6_000))
            rereads.append(Reread(step + 3, at + 60_000, ("src/a<b>.py", "parse_it"), 12, 2_400))
            called.append(_called((step + 3, at + 60_000), "reread", kept + 2_400, 0, 50))
        elif mask_every and step % mask_every == mask_every - 1:
            kept = size - 9_000
            edits.append(_edited((step, at), "mask", "clear_dead", (size, kept), None))
        cached = 0 if kept < size else cached
        size = kept
        called.append(_called((step, at), "turn", size, cached, 300))
        cached = size
    census = (
        WindowShare("tool_result", "read", size // 2, 40),
        WindowShare("tool_result", "bash", size // 5, 30),
        WindowShare("assistant", "", size // 6, 60),
        WindowShare("user", "", size // 40, 12),
        WindowShare("head", "base", 6_000, 2),
        WindowShare("context", "environment <&>", 900, 3),
    )
    falling = {str(cycle): ProbeScores(1 / (1 + cycle / 8), 1 - cycle / 50) for cycle in (1, 2, 5, 10)}
    return Outcome(name, tuple(called), tuple(edits), tuple(rereads), census, offloads=2, probes=falling)


def session(number: int = 1, calls: int = 120, profiles: tuple[str, ...] = tuple(LAW)) -> ReplayedSession:
    """A session under some profiles, with the events that were hidden."""
    lines = tuple(
        HiddenEvent(event, "tool_returned", "read", f"{event}: def parse_it(text): # <script>alert({event})</script>", 1_200)
        for event in range(10, 40)
    )
    found = {name: outcome(name, calls) for name in profiles}
    return ReplayedSession(
        f"2031040{number}-090000-aaaa", "home", "pal", 400, f"shop & co: session <{number}>", CARD, 380_000, found, lines
    )


def comparison(sessions: int = 1, calls: int = 120, cards: tuple[str, ...] = (CARD,)) -> Comparison:
    """Some sessions under four profiles, for some cards."""
    runs = tuple(CardRun(name, "5m", 200_000, tuple(session(number + 1, calls) for number in range(sessions))) for name in cards)
    return Comparison(runs, tuple(LAW), against="claude-code")


def _called(moment: tuple[int, int], purpose: Purpose, size: int, cached: int, output: int) -> BilledCall:
    usage = Usage(3, min(cached, size), max(0, size - cached - 3), output=output)
    return BilledCall(*moment, purpose, usage, simulated_cost(usage, card(CARD)))


def _edited(moment: tuple[int, int], kind: EditKind, by: str, sizes: tuple[int, int], survival: SurvivalShares | None) -> ReplayedEdit:
    loss = Loss(("src/a<b>.py", "src/deep/path.py"), ("pytest -q && echo '<done>'",), 41, int(by == "codex"), ("12.0",))
    hides = tuple(range(10, 10 + (20 if kind == "fold" else 4)))
    why = "the view was <full>"
    return ReplayedEdit(*moment, moment[0] * 4, kind, by, why, "before_call", *sizes, 0.0512, 0.021, hides, loss, survival, None, *sizes)
