"""What the keeper serves itself, over HTTP."""
