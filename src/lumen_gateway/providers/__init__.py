"""What differs between upstreams."""
