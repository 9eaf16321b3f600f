"""The tools that work on the session itself: todo list, task graph, recall, compaction and skills."""
