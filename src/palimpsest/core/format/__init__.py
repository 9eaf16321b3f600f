"""The format of a log file: lines, hash chain, checkpoints, and reading them."""
