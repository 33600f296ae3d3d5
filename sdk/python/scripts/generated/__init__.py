"""How the generated files of the SDK are written."""
