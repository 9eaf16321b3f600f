"""What notes are worth, which of them say the same, and which contradict each other; no model is asked."""
