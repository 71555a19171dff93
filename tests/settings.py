"""The product's settings, on a home of its own that is gone after the tests."""

import atexit
import os
import shutil
import tempfile

if "RELAYWEB_HOME" not in os.environ:
    os.environ["RELAYWEB_HOME"] = tempfile.mkdtemp(prefix="relayweb-tests-")
    atexit.register(shutil.rmtree, os.environ["RELAYWEB_HOME"], ignore_errors=True)

from relayweb.settings import *  # noqa: E402, F403

# Or else each test's browser looks through all static files there are.
WHITENOISE_AUTOREFRESH = True
