"""HTTP/1.1 to one server, with blocking sockets and with asyncio."""
