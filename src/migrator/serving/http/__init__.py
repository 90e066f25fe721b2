"""The HTTP API: routes, messages, authentication, limits and the server."""
