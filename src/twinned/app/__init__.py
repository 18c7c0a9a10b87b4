"""What a person runs: the command line, the HTTP service, reports, and files of tables."""
