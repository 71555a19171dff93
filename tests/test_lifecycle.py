from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.served import PROJECT

# Twelve threads that hold memory at the same time; printed is in how many arenas it lies.
THREADS = """
import ctypes, os, sys, tempfile, threading
if sys.argv[1] == "shared":
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    from relayweb.lifecycle import share_arenas
    share_arenas()
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fdopen.restype = ctypes.c_void_p
together = threading.Barrier(12)
def hold():
    libc.malloc(100)
    together.wait()
threads = [threading.Thread(target=hold) for _ in range(12)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
with tempfile.TemporaryFile() as told:
    stream = ctypes.c_void_p(libc.fdopen(os.dup(told.fileno()), b"w"))
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    told.seek(0)
    print(told.read().count(b"<heap nr="))
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.confstr("CS_GNU_LIBC_VERSION") is None, reason="of glibc"
)
def test_the_threads_of_a_server_share_two_arenas_of_memory() -> None:
    env = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}

    def arenas(how: str) -> int:
        done = subprocess.run(
            [sys.executable, "-c", THREADS, how], env=env, cwd=PROJECT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    assert arenas("by itself") > 2 >= arenas("shared")
