"""Other tools that shrink the requests of an agent, measured on the traffic of recorded sessions, beside the modes of our gateway."""
