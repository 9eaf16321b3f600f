"""The gateway as it runs, against a provider on the loopback whose bills are computed here and nowhere else."""
