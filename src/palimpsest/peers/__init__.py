"""Imitations of Claude Code, Codex, OpenCode and the teaching agent: their policies, sources and numbers."""
