"""`python -m palimpsest.apps.cli` is `pal`."""

from palimpsest.apps.cli.start import main

if __name__ == "__main__":
    main()
