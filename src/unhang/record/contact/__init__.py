"""How others find this process and ask it: marks, heartbeat, sockets, and the client's side."""
