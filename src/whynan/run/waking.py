"""A main thread that waits for one which harm has ended is not left waiting."""

from __future__ import annotations

import signal
import threading
import time

LOOK_S = 0.5
STILL = 4  # looks, one after the other, that find nobody at work


def wake_main_thread() -> None:
    """Once nothing moves any more: as by Ctrl-C, if that is what ends this program. One that joins the
    thread goes on by itself."""
    main = threading.main_thread()
    if threading.current_thread() is main or not hasattr(signal, "pthread_kill"):
        return
    threading.Thread(target=_wake, args=(main,), daemon=True, name="whynan").start()


def _wake(main: threading.Thread) -> None:
    from whynan.seam.threads import others_wait

    times = 0
    while main.is_alive() and times < STILL:
        time.sleep(LOOK_S)
        times = times + 1 if others_wait() else 0
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if times == STILL and is_usual and main.ident is not None:
        signal.pthread_kill(main.ident, signal.SIGINT)
