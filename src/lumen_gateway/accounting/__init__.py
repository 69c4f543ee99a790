"""Tokens, money, and who may spend them."""
