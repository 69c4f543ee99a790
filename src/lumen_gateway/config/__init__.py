"""The document: what it may say, how it is read, and everything that can be wrong with it."""
