"""Models, real and scripted."""
