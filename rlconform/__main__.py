"""``python -m rlconform``: the command line."""

from rlconform.cli import main

main()
