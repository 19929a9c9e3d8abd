"""The command line."""

import typer

app = typer.Typer()


@app.command()
def version() -> None:
    """Print the version."""
    print("0.1.0")
