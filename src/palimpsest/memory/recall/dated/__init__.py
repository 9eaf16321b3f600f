"""What has a date: dates in texts, notes that are due, and timelines."""
