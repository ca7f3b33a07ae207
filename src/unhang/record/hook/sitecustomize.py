"""Runs our hook in every Python that may have torch, and is not there in older ones, Python 2 too.

So it is written for all of them. What stands in `_unhang_hook` says what the hook does.
"""

import os
import sys

if sys.version_info >= (3, 7):  # noqa: UP036 - a job may start any
    import _unhang_hook  # type: ignore[import-not-found]  # noqa: F401 - it lies here
else:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    own = sys.modules.pop("sitecustomize")
    try:  # noqa: SIM105 - contextlib has no suppress in Python 2
        os.remove(os.path.join(here, "sitecustomize.pyc"))  # Python 2 puts it next to its source
    except OSError:
        pass
    try:  # noqa: SIM105 - as above
        import sitecustomize  # noqa: F401 - the one that we hide
    except ImportError:
        pass
    sys.modules.setdefault("sitecustomize", own)
