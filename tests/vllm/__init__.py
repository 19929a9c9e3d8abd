"""Checks on a real vLLM engine; `run.sh` installs it and runs them. Not part of `make test`."""
