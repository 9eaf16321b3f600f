"""Logs as files: one JSONL file with one writer and many readers, and the repair of a damaged one."""
