"""Files at the edge, read strictly: every fault is one sentence that names its key."""
