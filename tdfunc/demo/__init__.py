"""A deep ensemble trained as one compiled function: `python -m tdfunc.demo`."""
