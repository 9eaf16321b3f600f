"""Schema of the configuration of memory: notes, recall, background jobs and the pipeline over finished sessions."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

Number: TypeAlias = Annotated[int, Meta(ge=0, le=99_999_999)]
Span: TypeAlias = Annotated[float, Meta(ge=0, le=31_536_000)]
Budget: TypeAlias = Annotated[float, Meta(ge=0, le=1_000_000)]


class MemoryConfig(Struct, frozen=True, kw_only=True):
    """Memory across sessions. Tokens are those of our estimate."""

    use: Annotated[bool, Meta(description="Show notes to the model, recall them at prompts, and offer the tools of memory.")] = True
    tool: Annotated[
        bool, Meta(description="Offer the tool `memory`, which Anthropic's models know, with all notes as files, in place of `remember`.")
    ] = False
    jobs: Annotated[
        Literal["auto", "off"], Meta(description="auto: background jobs ask a model for notes, which costs money; off: none is asked.")
    ] = "off"
    model: Annotated[str, Meta(description="Model of the jobs; unset: that of the session.", extra={"example": '"claude-haiku-4-5"'})] = ""
    extract_every: Annotated[Number, Meta(description="Turns from one extraction of notes to the next; 0: none.")] = 1
    running_notes: Annotated[
        Literal["auto", "on", "off"],
        Meta(description="Running notes of a session, which make compaction instant: on, off, or auto (as the profile does)."),
    ] = "auto"
    notes_first_at: Annotated[Number, Meta(description="Tokens of a session from which running notes are written.")] = 10_000
    notes_growth: Annotated[Number, Meta(description="Tokens that a session grows between two updates of its running notes.")] = 5_000
    notes_calls: Annotated[Number, Meta(description="Tool calls between two updates of running notes, unless the model pauses.")] = 3
    notes_section_tokens: Annotated[Number, Meta(description="Tokens of one section of running notes.")] = 2_000
    notes_file_tokens: Annotated[Number, Meta(description="Tokens of all running notes of a session.")] = 12_000
    recall_notes: Annotated[Number, Meta(description="Most notes that a prompt recalls; 0: none.")] = 5
    recall_tokens: Annotated[Number, Meta(description="Most tokens that a prompt recalls.")] = 2_000
    recall_epoch_tokens: Annotated[Number, Meta(description="Most tokens that prompts recall between two folds.")] = 6_000
    recall_pick: Annotated[bool, Meta(description="Let a model choose among the notes that were found, which costs money.")] = False
    recall_model: Annotated[
        str,
        Meta(
            description="Model that chooses notes where a model does; unset: a light one of the provider of the session's model, "
            "or that model itself.",
            extra={"example": '"claude-haiku-4-5"'},
        ),
    ] = ""
    recall_embeddings: Annotated[bool, Meta(description="Use local embeddings for recall (extra `embed`).")] = False
    end_seconds: Annotated[
        Span,
        Meta(description="Seconds that the end of a session which ends with its turn waits for jobs of memory, if its profile has them."),
    ] = 60.0
    day_tokens_read: Annotated[
        Number, Meta(description="Most tokens that jobs of memory send to a model on one day, without those that a session has cached.")
    ] = 200_000
    day_tokens_written: Annotated[Number, Meta(description="Most tokens that a model writes for jobs of memory on one day.")] = 20_000
    stage_day_tokens_read: Annotated[
        Number, Meta(description="As `day_tokens_read`, for the two stages of the profiles `codex` and `codex-0.166`.")
    ] = 2_000_000
    stage_day_tokens_written: Annotated[
        Number, Meta(description="As `day_tokens_written`, for the two stages of the profiles `codex` and `codex-0.166`.")
    ] = 300_000
    run_usd: Annotated[Budget, Meta(description="Most US dollars of one run of the pipeline; 0: no model is asked.")] = 1.0
    idle_hours: Annotated[Span, Meta(description="Hours after its last event from which a session counts as finished.")] = 6.0
    age_days: Annotated[Span, Meta(description="Days after its last event until which a session is read.")] = 10.0
    sessions_per_start: Annotated[Number, Meta(description="Most sessions that the start of a session reads in the background.")] = 2
    parallel: Annotated[Annotated[int, Meta(ge=1, le=64)], Meta(description="Sessions that a run of the pipeline reads at once.")] = 8
    lease_seconds: Annotated[Span, Meta(description="Seconds after which another process may take over a job that was claimed.")] = 3_600.0
    heartbeat_seconds: Annotated[Span, Meta(description="Seconds between two renewals of the claim of a consolidation.")] = 90.0
    retries: Annotated[Number, Meta(description="Tries of a job of the pipeline.")] = 3
    retry_seconds: Annotated[Span, Meta(description="Seconds from a failed try to the next.")] = 3_600.0
    cooldown_hours: Annotated[Span, Meta(description="Hours from one consolidation to the next.")] = 6.0
    unused_days: Annotated[Span, Meta(description="Days without use after which the summary of a session is left out.")] = 30.0
    most_sessions: Annotated[Number, Meta(description="Most summaries of sessions that one consolidation reads.")] = 256
    notes_a_scope: Annotated[Number, Meta(description="Most active notes of a user or project; more are clustered.")] = 1_000
    quarantine_days: Annotated[Span, Meta(description="Days after which a note in quarantine is deleted, unless it was promoted.")] = 30.0
