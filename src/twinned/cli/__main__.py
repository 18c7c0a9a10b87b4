"""Entry point of `python -m twinned.cli`."""

from twinned.cli import main

main()
