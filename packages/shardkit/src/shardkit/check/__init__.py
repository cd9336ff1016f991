"""Shards -> findings: what is known of each, the rules, and what several together must not have."""
