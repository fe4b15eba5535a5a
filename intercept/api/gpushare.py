# SPDX-License-Identifier: Apache-2.0
"""What a program may tell gpushare about itself, and ask: gpushare.h for Python. One file, no build.

    import gpushare

    for batch in loader:
        with gpushare.iteration():
            loss = train(batch)

    with gpushare.iteration(phase="decode", arrived=request.arrived):
        ...

Works wherever it is imported: if libgpushare.so is not preloaded, or no agent wants to know, every
call does next to nothing, and those that return something return None. No program needs it:
iterations are also recognised from the launches alone. Once a process has announced one, only
announced iterations count, so announce all of them or none. Any thread may call; one iteration
object belongs to one thread at a time. Times are nanoseconds of time.monotonic_ns().
"""

import collections
import ctypes

__all__ = ["Iterations", "Share", "arrive", "expect", "is_attached", "iteration", "iterations",
           "set_slo", "share"]

OK, NOT_ATTACHED, INVALID, BUSY = range(4)
PHASES = (None, "prefill", "decode")
SOURCES = (None, "recognised", "announced")

Iterations = collections.namedtuple(
    "Iterations", "source confidence phase slo_us begun ended began_ns period_ns p99_ns")
Share = collections.namedtuple("Share", "gpu sms sms_entitled sms_in_use")


class _Iteration(ctypes.Structure):
    _fields_ = [("arrived_ns", ctypes.c_uint64), ("began_ns", ctypes.c_uint64)]


class _Iterations(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("source", "confidence", "phase", "slo_us")] + [
        (name, ctypes.c_uint64) for name in ("begun", "ended", "began_ns", "period_ns", "p99_ns")]


class _Share(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_char * 16)] + [
        (name, ctypes.c_uint32) for name in ("sms", "sms_entitled", "sms_in_use", "reserved")]


def _not_attached(*_):
    return NOT_ATTACHED


def _find(name, *parameters):
    try:
        function = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError):
        return _not_attached
    function.argtypes = parameters
    function.restype = ctypes.c_int
    return function


_arrive = _find("gpushare_arrive", ctypes.POINTER(_Iteration))
_begin = _find("gpushare_begin", ctypes.POINTER(_Iteration), ctypes.c_int)
_end = _find("gpushare_end", ctypes.POINTER(_Iteration))
_set_slo = _find("gpushare_set_slo", ctypes.c_uint32)
_expect = _find("gpushare_expect", ctypes.c_uint64)
_read_iterations = _find("gpushare_read_iterations", ctypes.POINTER(_Iterations))
_read_share = _find("gpushare_read_share", ctypes.c_uint, ctypes.POINTER(_Share))


class iteration:
    """An iteration, as a `with` block. `arrived`: what arrive() returned."""

    def __init__(self, phase=None, arrived=None):
        if phase not in PHASES:
            raise ValueError(f"phase must be one of {PHASES}, not {phase!r}")
        self._phase = PHASES.index(phase)
        self._state = _Iteration(arrived or 0, 0)

    def __enter__(self):
        _begin(self._state, self._phase)
        return self

    def __exit__(self, *_):
        _end(self._state)


def arrive():
    """A request has arrived and will begin later. Returns when, for iteration(arrived=)."""
    state = _Iteration()
    return state.arrived_ns if _arrive(state) in (OK, BUSY) else None


def set_slo(us):
    """How long an iteration is to take on average, at most, in microseconds; 0 takes it back."""
    return _set_slo(us) == OK


def expect(iterations):
    """So many iterations will begin from now on, until the job is done; 0 takes it back."""
    return _expect(iterations) == OK


def is_attached():
    return _read_iterations(_Iterations()) != NOT_ATTACHED


def iterations():
    """What the agent sees of this process's iterations."""
    state = _Iterations()
    if _read_iterations(state) != OK:
        return None
    return Iterations(SOURCES[state.source], state.confidence / 1000, PHASES[state.phase],
                      state.slo_us, state.begun, state.ended, state.began_ns, state.period_ns,
                      state.p99_ns)


def share(n=0):
    """The SMs of the n-th GPU that this process may use; None: unknown, or there is no such GPU."""
    state = _Share()
    if _read_share(n, state) != OK:
        return None
    return Share(state.gpu.decode(), state.sms, state.sms_entitled, state.sms_in_use)
