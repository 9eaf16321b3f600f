"""Wire formats: encodes a view as the JSON of a provider, and decodes its responses and streams into contents."""
