"""What the providers refuse, checked without a provider."""
