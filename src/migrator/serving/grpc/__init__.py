"""The Open Inference Protocol over gRPC."""
