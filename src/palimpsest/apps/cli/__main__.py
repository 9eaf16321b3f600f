"""`python -m palimpsest.apps.cli` is `pal`, as other programs have it in their configuration; it goes with 0.5."""

from pal.cli.start import main

main()
