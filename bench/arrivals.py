# SPDX-License-Identifier: Apache-2.0
"""Requests that come at given times, for the programs that answer them one after the other."""
import queue
import threading
import time


def arrivals(due_times, announce=lambda due: None):
    """Yields (due, announce(due)) for each request, as soon as the caller is free and not before its time (of
    time.monotonic()). `announce` is called when the request comes, on a thread of its own, also while the caller
    answers another one."""
    waiting = queue.Queue()

    def arrive():
        for due in due_times:
            time.sleep(max(0.0, due - time.monotonic()))
            waiting.put((due, announce(due)))
        waiting.put(None)

    threading.Thread(target=arrive, daemon=True).start()
    return iter(waiting.get, None)
