"""What the imitated systems do with context, mechanism by mechanism, what their profiles do here, and where ours differs."""
