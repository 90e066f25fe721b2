"""Learning: models, class-incremental benchmarks, retraining, and what retraining will bring."""
