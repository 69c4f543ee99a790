"""Lumen gateway: one endpoint in front of every model provider.

Start reading at `gateway.py`, which tells the life of one request from first byte to last.
"""

__version__ = "0.1.0"
