"""From a view to a provider's JSON, and from its streams back to contents."""
