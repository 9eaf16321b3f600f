"""Memory at work: the notes of a scope on disk, and the jobs that read sessions and write them."""
