"""Learning a vocabulary on the device."""
