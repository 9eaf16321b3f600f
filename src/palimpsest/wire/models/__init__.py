"""Model cards and prices."""
