"""Skills: their files, the catalogue that lists them, and the bodies of those that the user mentions."""
