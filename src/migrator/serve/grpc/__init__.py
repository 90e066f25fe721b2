"""The API over gRPC: the messages of the Open Inference Protocol, and their server."""
