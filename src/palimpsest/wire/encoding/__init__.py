"""What the three wires share when a view becomes a request."""
