"""Settings, errors and the data of one call; imports nothing else of the service."""
