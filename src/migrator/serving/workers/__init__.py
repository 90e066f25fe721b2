"""Worker processes: forked from a process that holds the models, each serving one instance."""
