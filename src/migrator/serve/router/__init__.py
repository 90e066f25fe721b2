"""Queues requests per tenant and sends them to workers in batches."""
