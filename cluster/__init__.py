"""The cluster side of Gramary; so far the command line."""
