"""Throughput of the whole command against TFDS and against what decoding and copying alone cost."""
