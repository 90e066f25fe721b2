"""The planning problem and its solvers: a problem in, a verified plan out."""
