"""The entry point of `python -m tdfunc.demo`."""

from tdfunc.demo._cli import main

if __name__ == "__main__":
    raise SystemExit(main())
