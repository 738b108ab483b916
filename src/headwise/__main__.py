"""`python -m headwise`: the command line."""

from headwise.cli import run

if __name__ == "__main__":
    run()
