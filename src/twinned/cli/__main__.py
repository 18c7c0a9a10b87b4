"""`python -m twinned.cli` is `twinned`."""

from twinned.cli import main

main()
