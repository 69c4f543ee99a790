"""A virtual model's logic, compiled: from a requested id to the attempts it may make. Pure; no I/O."""
