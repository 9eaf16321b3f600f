"""How people and models reach the notes: adding, editing, evidence, search, import and export, and the tree of the memory tool."""
