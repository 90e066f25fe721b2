"""The models: a module offers its own in `MODELS`. Networks are built when asked for."""
