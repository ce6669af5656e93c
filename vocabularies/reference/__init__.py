"""The oracle: encode and decode, slow and plain."""
