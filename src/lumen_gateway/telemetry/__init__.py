"""What is logged and counted."""
