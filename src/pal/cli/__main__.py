"""`python -m pal.cli` is `pal`."""

from pal.cli.start import main

if __name__ == "__main__":
    main()
