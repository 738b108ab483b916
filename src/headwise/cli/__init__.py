"""The command line. One file per verb, or per group of related verbs; `main` puts them together."""
