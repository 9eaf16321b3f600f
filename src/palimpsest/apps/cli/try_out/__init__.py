"""Commands that replay, benchmark and demonstrate."""
