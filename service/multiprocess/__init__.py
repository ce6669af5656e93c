"""Several front-end processes before one engine process."""
