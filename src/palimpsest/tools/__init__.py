"""The tools of the agent, one file each: what the model may do to files, processes and pages."""
