"""Entry point of `python -m twinned.cli`."""

from twinned.cli import main

if __name__ == "__main__":
    main()
