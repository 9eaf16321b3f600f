"""Exports a session as a request, Markdown or HTML, and finds where an exported file belongs."""
