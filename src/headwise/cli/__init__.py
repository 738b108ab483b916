"""The command line. One verb per file; `main` puts them together."""
