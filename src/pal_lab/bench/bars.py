"""The bars: what each one measures, its unit, and the limit that its value must keep."""

from typing import Literal, TypeAlias

from msgspec import Struct, structs

from pal.replay.outcome import ProbeScores, SurvivalShares

Better: TypeAlias = Literal["lower", "higher"]
# The table of docs/benchmark.md that holds a bar: speed of this machine, or cost of replayed sessions.
Table: TypeAlias = Literal["bench", "cost"]


class Goal(Struct, frozen=True):
    """Definition of a bar; the unit `u` is the time to decode 1,000 typical events. A bar without a limit is only reported."""

    unit: str
    limit: float | None
    about: str
    better: Better = "lower"
    table: Table = "bench"


GOALS: dict[str, Goal] = {
    "turn_1k": Goal("u", 0.35, "build the request of a turn and decide, 1,000 events"),
    "turn_10k": Goal("u", 0.35, "the same, 10,000 events"),
    "turn_100k": Goal("u", 0.35, "the same, 100,000 events"),
    "decide": Goal("u", 0.01, "count the used tokens and decide, the slowest of the three lengths"),
    "resume_1k": Goal("u", 1.2, "open a session to a view ready for the model, 1,000 events"),
    "resume_10k": Goal("u", 1.2, "the same, 10,000 events"),
    "resume_100k": Goal("u", 1.2, "the same, 100,000 events"),
    "resume_edited": Goal("u", 1.2, "the same when the last event is an edit, 10,000 events"),
    "resume_crashed": Goal("u", 1.2, "the same at worst: a crash right before a checkpoint, 10,000 events"),
    "load": Goal("x", 2.5, "read a whole log without its checkpoint and check its hash chain, against decoding its lines"),
    "append": Goal("x", 1.5, "append one event durably, against a raw write and fdatasync"),
    "append_cpu_us": Goal("µs", 150, "processor time of one durable append, the slower of 1,000 and 100,000 events"),
    "loop_ms": Goal("ms", 10, "the longest time that a fold and a call at 200,000 tokens keep an event loop from other work"),
    "agent_turn_ms": Goal(
        "ms", 10, "a turn of the agent with one tool call at 200,000 tokens, without model, tool, disk sync, context sources and rules"
    ),
    "plan_ms": Goal("ms", 1, "processor time of the slowest plan of a policy, up to its first request, at 200,000 tokens"),
    "fold_ms": Goal("ms", 50, "processor time of a fold without a model at 200,000 tokens, with its gate, price and loss"),
    "mirror_ms": Goal(
        "ms", 15, "processor time of following the list of another program, deciding and giving it back, at 200,000 tokens and 800 messages"
    ),
    "gateway_ms": Goal(
        "ms", 25, "from the first byte of a request of 200,000 tokens to its first byte at the provider, through the gateway; slowest mode"
    ),
    "stream_ms": Goal("ms", 5, "slowest event of 50 streams through the gateway, while a conversation of 200,000 tokens is edited"),
    "gateway_growth": Goal("x", 1.1, "memory of the gateway after 2,000 requests of 200 sessions, against a half of them"),
    "group_commit": Goal("x", 3, "append ten events and sync once, against ten raw writes and one fdatasync"),
    "fork": Goal("u", 0.1, "begin a new session from the tip of another, 10,000 events"),
    "fork_bytes": Goal("B", 4096, "bytes that a fork writes, all files"),
    "disk_ratio": Goal("x", 1.15, "log and checkpoint, against the same bodies as plain JSONL"),
    "index_ratio": Goal("x", None, "the search index, against the logs it covers"),
    "index_mb_s": Goal("MB/s", None, "building the search index", "higher"),
    "search_vs_ripgrep": Goal("x", 100, "find a rare word in all sessions: how much faster than ripgrep", "higher"),
    "list_2000": Goal("u", 10, "list 2,000 sessions, looking at each file's size and time"),
    "tokens_error": Goal("%", 12, "mean error of the calibrated token estimate against the exact count"),
    "replay_seconds": Goal("s", 10, "replay a session of 1M tokens under six profiles, start to end"),
    "replay_peak_mb": Goal("MB", 500, "peak memory of this replay"),
    "help_ms": Goal("ms", 150, "`pal --help`, start to end"),
    "hook_ms": Goal("ms", 500, "processor time of the evidence hook after a compaction, for a transcript of 100 MB, read before or not"),
    "mcp_initialize_ms": Goal("ms", 300, "`pal mcp`, from its start to the reply to `initialize`"),
    "ask_ms": Goal("ms", 300, "`pal -p` with a scripted model, start to end"),
    "prompt_ms": Goal("ms", 400, "`pal` in a terminal, from its start to the first prompt"),
    "typing_ms": Goal(
        "ms", 30, "slowest of 100 keys to its echo in the terminal; 200 tokens a second stream in, session of 200,000 tokens"
    ),
    "terminal_growth": Goal("x", 1.1, "memory of the terminal at the end of 1,000 turns, against a fifth of them"),
    "cost_anthropic": Goal(
        "x", 0.88, "dollars against `claude-code-2.1.325`, re-reads billed, no model; breakpoints of five minutes", table="cost"
    ),
    "cost_anthropic_1h": Goal("x", None, "the same; breakpoints of one hour", table="cost"),
    "cost_openai": Goal("x", 0.88, "the same; automatic prefix cache", table="cost"),
    "cost_worst": Goal("x", 1.1, "the most expensive session of all, in any of the three ways of pricing", table="cost"),
    "rereads": Goal(
        "x",
        1.0,
        "re-reads by *text* in relation to `claude-code-2.1.325`; breakpoints of five minutes or automatic, the worse",
        table="cost",
    ),
    "rereads_strings": Goal("x", 1.2, "the same by *strings*, counted and not billed", table="cost"),
    "invalid": Goal("", 0, "malformed requests, under all profiles", table="cost"),
    "survival_user_messages": Goal("%", 100, "user messages that are still visible after a fold", "higher", "cost"),
    "survival_edited_paths": Goal("%", 99, "edited files that are still named", "higher", "cost"),
    "survival_read_paths": Goal("%", 90, "read files that are still named", "higher", "cost"),
    "survival_commands": Goal("%", 95, "commands that are still visible", "higher", "cost"),
    "survival_numbers": Goal("%", None, "numbers that are still visible", "higher", "cost"),
    "probes_1": Goal("%", None, "probes answered from the view after a forced fold", "higher", "cost"),
    "probes_2": Goal("%", None, "the same after two", "higher", "cost"),
    "probes_5": Goal("%", None, "the same after five", "higher", "cost"),
    "probes_10": Goal("%", None, "the same after ten", "higher", "cost"),
}


class Peer(Struct, frozen=True):
    """Value of another library for the same work on the same data, in the unit of the bar."""

    name: str
    value: float


def peer_value(name: str, value: float | None) -> Peer | None:
    """Return the value of a peer, or None if it is not installed or would take too long."""
    return None if value is None else Peer(name, round_to_4(value))


class Bar(Struct, frozen=True):
    """One measured value; `ok` is None if it could not be measured, `detail` holds the numbers behind it.

    A bar whose measurement failed has no value and is missed; `why` says what happened.
    """

    name: str
    value: float | None
    limit: float | None
    unit: str
    ok: bool | None
    peer: Peer | None = None
    better: Better = "lower"
    detail: dict[str, float] = {}
    why: str = ""


class ProfileRow(Struct, frozen=True):
    """Totals of one profile: dollars and ratios to the baseline by pricing run, re-reads, folds, mean context, survival and probes.

    `rereads` were billed; `rereads_by` has their number by each definition.
    """

    profile: str
    usd: dict[str, float]
    ratios: dict[str, float | None]
    calls: int
    rereads: int
    folds: int
    folds_per_100: float
    mean: int
    invalid: int
    survival: SurvivalShares
    probes: dict[str, ProbeScores]
    rereads_by: dict[str, int] = {}


class SessionCostRow(Struct, frozen=True):
    """One session: cost ratios of our profile to the baseline, and the re-reads of ours and of the baseline (`theirs`)."""

    session: str
    format: str
    tokens: int
    ratios: dict[str, float | None]
    rereads: int
    theirs: int


class Report(Struct, frozen=True):
    """All bars of one run, and the length of `u` in milliseconds; `profiles` and `sessions` are set if sessions were replayed."""

    unit_ms: float
    bars: tuple[Bar, ...]
    quick: bool
    took_s: float
    machine: dict[str, str] = {}
    profiles: tuple[ProfileRow, ...] = ()
    sessions: tuple[SessionCostRow, ...] = ()
    replayed: str = ""

    @property
    def missed(self) -> tuple[Bar, ...]:
        """Bars whose value is outside its limit."""
        return tuple(bar for bar in self.bars if bar.ok is False)


def bar(name: str, value: float | None, peer: Peer | None = None, **detail: float) -> Bar:
    """Return a bar with its value compared to its limit."""
    goal = GOALS[name]
    rounded_value = None if value is None else round_to_4(value)
    numbers = {key: round_to_4(each) for key, each in detail.items()}
    return Bar(name, rounded_value, goal.limit, goal.unit, within_limit(goal, rounded_value), peer, goal.better, numbers)


def failed_bar(name: str, why: str) -> Bar:
    """Return a bar whose measurement failed, such as by running into its own time limit."""
    goal = GOALS[name]
    return Bar(name, None, goal.limit, goal.unit, ok=False, better=goal.better, why=why)


def without_limit(each: Bar) -> Bar:
    """Return a bar that is only reported."""
    return structs.replace(each, limit=None, ok=True)


def within_limit(goal: Goal, value: float | None) -> bool | None:
    """Whether a value is within its limit; None if there is no value."""
    if value is None:
        return None
    if goal.limit is None:
        return True
    return value <= goal.limit if goal.better == "lower" else value >= goal.limit


def round_to_4(value: float) -> float:
    """Round to four significant digits; a measurement has no more."""
    return float(f"{value:.4g}")
