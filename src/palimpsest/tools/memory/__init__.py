"""The tools by which a model reaches notes that outlive the session."""
