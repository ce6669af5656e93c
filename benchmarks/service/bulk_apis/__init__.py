"""Large bodies through each API, beside echoes of the same bytes.

`servers` starts the service and the echoes, `clients` sends and reads the bodies, and `__main__`
proves the ids and measures in turns.
"""
