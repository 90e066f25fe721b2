"""The live page: records in, a page that shows them and follows what is new."""
