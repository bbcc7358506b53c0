"""What `peers.py` is made of: peers and their weights, engines, servers under load, ratios."""
