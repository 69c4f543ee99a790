"""What happens to one request."""
