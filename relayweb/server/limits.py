"""How much, and for how long."""

INBOX_BYTES = 1024 * 1024
"""What a connection may have waiting for the application before it is read no further."""
PAGE_BODY = 2 * 1024 * 1024
"""Bytes a request body may have outside the doors and the gateway."""
PAGES_BYTES = 256 * 1024 * 1024
"""Bytes of such bodies at a time, of all connections together."""
PAGE_SECONDS = 60
"""In which such a body has to be there: it is read before anybody is asked for a login."""
FRAGMENTS = 10_000
"""Frames that one message of a websocket may come in."""
TURN_SECONDS = 0.005
"""How long what one websocket sent is parsed before others have their turn."""
HEADER_BYTES = 64 * 1024
IDLE_SECONDS = 120
"""Longer than the 90 s after which Relay's client drops an idle connection: whoever closes first must not be us."""
STALL_SECONDS = 120
"""A client that takes nothing for so long is cut off."""
LINGER_SECONDS = 10
"""How long a refused body is read and thrown away, so that the client gets to the answer."""
FILES = 65_536
"""File descriptors taken where the system allows so many."""
FILES_KEPT = 256
"""Of those, what is not for connections: the database, the log, and so on. A call of the gateway takes two."""
GRACE_SECONDS = 8
"""How long answers that have begun may go on after the order to stop."""
STOP_SECONDS = 14
"""After this long the process ends, come what may."""
