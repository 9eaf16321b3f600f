"""Steps of encoding that the three wires share."""
