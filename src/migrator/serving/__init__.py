"""From a request to its answer: HTTP API, router, and the worker processes that hold models."""
