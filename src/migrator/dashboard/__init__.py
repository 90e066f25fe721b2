"""The live page: shows the records of runs and follows what is new."""
