"""`python -m pagurid.cli`."""

from pagurid.cli.main import main

main()
