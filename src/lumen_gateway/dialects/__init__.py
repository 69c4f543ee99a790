"""Wire formats, both directions: bytes and shapes, no sockets and no clock."""
