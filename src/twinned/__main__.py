"""`python -m twinned`: the command line."""

from twinned.app.cli import main

if __name__ == "__main__":
    main()
