"""Markdown for the terminal: headings to the left, code without a frame, links with their addresses."""

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, TableElement
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from pal.terminal.look import CODE_THEMES, ScreenLook


class LeftHeading(Heading):
    """A heading at the left margin, as deep as its number of `#`."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the heading in bold; those of the first two levels are underlined."""
        text = self.text.copy()
        text.justify = "left"
        text.stylize("bold underline" if self.tag in ("h1", "h2") else "bold")
        yield text


class PlainCode(CodeBlock):
    """Code in colours on the terminal's own background, indented by two columns, so that it can be copied."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the code; lines that are too long are wrapped."""
        code = str(self.text).rstrip()
        yield Syntax(code, self.lexer_name, theme=self.theme, background_color="default", word_wrap=True, padding=(0, 0, 0, 2))


class PlainTable(TableElement):
    """A table with one line below its head, and no empty lines around it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table."""
        for part in super().__rich_console__(console, options):
            if isinstance(part, Table):
                part.box, part.show_edge = box.SIMPLE_HEAD, False
            yield part


class TerminalMarkdown(Markdown):
    """Markdown with our headings and code."""

    elements = {**Markdown.elements, "heading_open": LeftHeading, "fence": PlainCode, "code_block": PlainCode, "table_open": PlainTable}


def markdown(text: str, look: ScreenLook) -> Markdown | Text:
    """Return a Markdown text for rich. For screen readers it stays as it was written: its marks say what is a heading or code."""
    if look.spoken:
        return Text(text.rstrip())
    return TerminalMarkdown(text, code_theme=CODE_THEMES[look.theme], hyperlinks=False)
