"""Implementations in batched torch operations: any device, any dtype torch has."""
