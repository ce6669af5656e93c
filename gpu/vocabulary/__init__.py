"""Tables of a vocabulary put on the device, and the cache of them."""
