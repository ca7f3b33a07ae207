"""`python -m unhang` is the same as `unhang`."""

import sys

from unhang.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
