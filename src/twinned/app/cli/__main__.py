"""Entry point of `python -m twinned.app.cli`."""

from twinned.app.cli import main

if __name__ == "__main__":
    main()
