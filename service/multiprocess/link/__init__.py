"""The link between a front end and the engine process."""
