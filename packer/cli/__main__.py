"""`python -m packer.cli` is the `packer` command."""

from packer.cli import main

main()
