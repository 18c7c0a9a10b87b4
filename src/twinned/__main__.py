"""`python -m twinned`: the command line."""

from twinned.cli import main

if __name__ == "__main__":
    main()
