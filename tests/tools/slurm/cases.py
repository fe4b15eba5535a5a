# SPDX-License-Identifier: Apache-2.0
"""Tests of one cluster, one after the other, told as GoogleTest does."""
import subprocess
import sys
import time
import traceback


def run(suite, tests, test_one, logs):
    """Calls test_one(test, began) for each until one fails, as the next would begin on what that left; logs() yields names and
    texts of what to print then. Returns main's status."""
    for test in tests:
        print("[ RUN      ] %s.%s" % (suite, test.__name__), flush=True)
        began, failed = time.monotonic(), False
        try:
            test_one(test, began)
        except (AssertionError, OSError, KeyError, subprocess.SubprocessError):
            traceback.print_exc(file=sys.stdout)
            for log, text in logs():
                print("--- %s\n%s" % (log, "\n".join(text.splitlines()[-40:])))
            failed = True
        result = "  FAILED  " if failed else "       OK "
        print("[%s] %s.%s (%d ms)" % (result, suite, test.__name__, (time.monotonic() - began) * 1000), flush=True)
        if failed:
            return 1
    return 0


def wanted(tests, names):
    return [test for test in tests if not names or test.__name__ in names]


def skip(suite, tests, reason):
    for test in tests:
        print("cases.py:1: Skipped\n%s\n[  SKIPPED ] %s.%s (0 ms)" % (reason, suite, test.__name__))
