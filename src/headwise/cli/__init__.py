"""The command line. One verb a file; `main` puts them together."""
