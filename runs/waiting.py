"""How a call waits without a thread: the view answers at once, and the event loop asks it again.

A view that has nothing new to say yet names in HEADER for how many seconds its client will wait. `evalsite.serving`
keeps that answer back, asks the view again every second, less often while many wait, with ASKED_AGAIN set, and sends
the first answer without the header, or the last one at the end of that time. Other servers send the first answer.
"""

from __future__ import annotations

HEADER = "Evalsite-Wait"
ASKED_AGAIN = "evalsite.asked_again"
EVERY_S = 1.0
MAX_WAIT_S = 60
