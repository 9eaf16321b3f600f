"""The message that a conversation goes on from after a compaction: the summary, and what belongs around it."""

import re
from dataclasses import dataclass

from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Text, ToolCall
from palimpsest.policies.prompt import prompt
from palimpsest.policies.summary_reply import refuses

_ANALYSIS = re.compile(r"<analysis>(.*?)</analysis>", re.DOTALL | re.IGNORECASE)
_UNENDED = re.compile(r"<analysis>.*", re.DOTALL | re.IGNORECASE)
_SUMMARY = re.compile(r"<summary>(.*?)(?:</summary>|\Z)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Continued:
    """How the message is put together.

    As documented the newest messages are mentioned before the paragraph on going on, which only follows an automatic compaction.
    As `measured` the used tools are listed, going on is always mentioned, and a note on verbatim messages ends it.
    """

    measured: bool = False
    keep_analysis: bool = False

    def message(self, summary: str, session: str, *, automatic: bool, kept: bool, tools: tuple[str, ...] = ()) -> str:
        """All parts in their order, with an empty line between two."""
        parts = [prompt("continued_opening")]
        if self.measured and tools:
            used = f"<tools-used-before-summary>{', '.join(sorted(set(tools)))}</tools-used-before-summary>"
            parts.append(f"<system-reminder>\n{used}\n</system-reminder>")
        parts += [summary, prompt("continued_pointer", session=session)]
        if self.measured:
            parts += [prompt("continued_work"), prompt("continued_verbatim")]
        else:
            parts += [prompt("continued_recent")] if kept else []
            parts += [prompt("continued_work")] if automatic else []
        return "\n\n".join(parts)

    def summary_of(self, reply: ModelReplied) -> str:
        """What a reply says for the view, under its label; empty when it says nothing, refuses, or wants a tool instead of saying it."""
        text = "\n".join(part.text for part in reply.parts if isinstance(part, Text)).strip()
        if any(isinstance(part, ToolCall) for part in reply.parts) and not _SUMMARY.search(text):
            return ""
        thought = _ANALYSIS.search(text)
        rest = _UNENDED.sub("", _ANALYSIS.sub("", text)) if not _SUMMARY.search(_ANALYSIS.sub("", text)) else _ANALYSIS.sub("", text)
        found = _SUMMARY.search(rest)
        said = (found[1] if found else rest).strip()
        if not said or refuses(said):
            return ""
        if self.keep_analysis and thought and thought[1].strip():
            return f"Analysis:\n{thought[1].strip()}\n\nSummary:\n{said}"
        return f"Summary:\n{said}"
