"""The only folder that opens outward sockets: names, connections, and the upstream client on top."""
