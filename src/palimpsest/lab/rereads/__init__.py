"""Re-reads: what a recorded call needs and the replayed view no longer shows, by three definitions."""
